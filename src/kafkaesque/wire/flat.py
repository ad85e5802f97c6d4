"""Requests and responses as plain tuples of values, for the few APIs whose cost is all that counts.

Most Produce requests have one topic with one partition. Then the structs around the values say
nothing, and to make and unmake them costs more than all the rest of the codec. What is read or
written here is the same bytes by the same tables; a message of any other shape is for `codec`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

from kafkaesque.model.errors import ProtocolError
from kafkaesque.wire import native
from kafkaesque.wire.api import decode_request_header
from kafkaesque.wire.codec import decode, response_framer, response_header_is_flexible
from kafkaesque.wire.table import Request, Response, Struct, blank

Values: TypeAlias = tuple[Any, ...]
FlatReader: TypeAlias = Callable[[memoryview], tuple[int, Values] | None]
FlatFrameWriter: TypeAlias = Callable[[int, Values], bytes]


class _OtherShape(Exception):
    """An array of structs that has not exactly one element, or a tagged field that is given."""


def flat_reader(cls: type[Request], version: int) -> FlatReader:
    """A function from a request's frame to its correlation id and the values of its fields, in the
    order of the tables; a field that the version lacks has its default.

    None, if an array of structs has not exactly one element, if there is anything unusual, and if
    the frame cannot be read: `codec` does the former and refuses the latter.
    """

    def read(frame: memoryview) -> tuple[int, Values] | None:
        try:
            header = decode_request_header(frame)
            if header[:2] != (cls.API_KEY, version):
                return None
            message = decode(cls, frame, version, header.body_position)
            return header.correlation_id, tuple(_values(message, version))
        except (ProtocolError, _OtherShape):
            return None

    return native.flat_reader(read, cls, version, version >= cls.FLEXIBLE_SINCE, cls.API_KEY)


def _values(struct: Struct, version: int) -> Iterator[Any]:
    for field in type(struct).fields:
        value = getattr(struct, field.name)
        if version in field.tagged and value != field.default:
            raise _OtherShape(field.name)
        if field.struct is None or version not in field.versions or version in field.tagged:
            yield value
        elif field.is_array:
            if value is None or len(value) != 1:
                raise _OtherShape(field.name)
            yield from _values(value[0], version)
        elif version in field.nullable:
            yield value
        else:
            yield from _values(value, version)


def flat_frame_writer(cls: type[Response], version: int, leaves: Sequence[str]) -> FlatFrameWriter:
    """A function from a correlation id and the values of `leaves` to a response frame.

    A leaf is named by its way from the message, with dots; an array on that way has one element.
    All other fields have their defaults. Raises as `codec.encode` does.
    """

    def write(correlation_id: int, values: Values) -> bytes:
        message = blank(cls)
        for leaf, value in zip(leaves, values, strict=True):
            _put(message, leaf, value)
        return b"".join(response_framer(cls, version)(message, correlation_id)[0])

    flexible = version >= cls.FLEXIBLE_SINCE
    header_is_flexible = response_header_is_flexible(cls, version)
    return native.flat_frame_writer(write, cls, version, flexible, header_is_flexible, leaves)


def _put(struct: Struct, leaf: str, value: Any) -> None:
    name, _, rest = leaf.partition(".")
    if not rest:
        setattr(struct, name, value)
        return
    (field,) = (field for field in type(struct).fields if field.name == name)
    inner = getattr(struct, name)
    if not inner:
        made = blank(field.struct)  # type: ignore[arg-type]
        inner = [made] if field.is_array else made
        setattr(struct, name, inner)
    _put(inner[0] if field.is_array else inner, rest, value)
