"""Encodes and decodes messages, with their headers and length prefixes.

Readers and writers are generated on first use, one per (class, version). The rest of the program
calls only the functions of this module.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

from kafkaesque.model.errors import ProtocolError
from kafkaesque.wire import native
from kafkaesque.wire.bounds import (
    STRING_LENGTH_MAX,
    LocalProtocolError,
    explain_unwritable,
    skip_tags,
)
from kafkaesque.wire.reader import compile_reader
from kafkaesque.wire.table import Message, Request, Response
from kafkaesque.wire.writer import compile_writer

M = TypeVar("M", bound=Message)
R = TypeVar("R", bound=Response)

Buffers: TypeAlias = list[bytes | memoryview]
"""Consecutive buffers of one message, for writev or writelines."""

API_VERSIONS_KEY = 18

_pack_header = struct.Struct(">ii").pack
_pack_flexible_header = struct.Struct(">iix").pack
_unpack_int32 = struct.Struct(">i").unpack_from


def decode(cls: type[M], data: memoryview, version: int, position: int = 0) -> M:
    """Decodes the message that fills `data` from `position` to its end. Raises ProtocolError.

    Records are slices of `data`, writable if it is; nothing else keeps `data` alive.
    """
    reader = message_reader(cls, version)
    try:
        message: M = reader(data, position)
    except UNREADABLE as error:
        raise explain_unreadable(cls, version, error) from error
    return message


UNREADABLE = (struct.error, IndexError, UnicodeDecodeError)
"""Exceptions that a reader raises besides ProtocolError, for `explain_unreadable`."""


def message_reader(cls: type[M], version: int) -> Callable[[memoryview, int], M]:
    """The reader that `decode` uses, for callers that decode the same message type repeatedly."""
    return cls.compiled_readers.get(version) or _make_reader(cls, version)


def explain_unreadable(cls: type[Message], version: int, error: Exception) -> ProtocolError:
    if isinstance(error, UnicodeDecodeError):
        return ProtocolError(f"{cls.__name__} v{version} has a string that is not UTF-8")
    return ProtocolError(f"{cls.__name__} v{version} is cut short")


def encode(message: Message, version: int) -> Buffers:
    """Encodes the body of `message`. Records are not copied; everything between them is joined."""
    cls = type(message)
    writer = cls.compiled_writers.get(version) or _make_writer(cls, version)
    try:
        buffers: Buffers = writer(message)
    except (TypeError, AttributeError, ValueError, struct.error) as error:
        reason = explain_unwritable(message, version) or str(error)
        raise LocalProtocolError(f"{cls.__name__} v{version}: {reason}") from error
    return buffers


def encode_response_frame(
    message: Response, version: int, correlation_id: int
) -> tuple[Buffers, int]:
    """Encodes a response frame (length, header, body); returns it with its size in bytes."""
    return response_framer(type(message), version)(message, correlation_id)


def response_framer(cls: type[R], version: int) -> Callable[[R, int], tuple[Buffers, int]]:
    """The function that `encode_response_frame` uses for this class and version."""
    return cls.compiled_frame_writers.get(version) or _make_frame_writer(cls, version)


def encode_request_frame(
    message: Request, version: int, correlation_id: int, client_id: str | None
) -> Buffers:
    """Encodes a request frame: length, request header v1 or v2, body."""
    buffers = encode(message, version)
    name = b"" if client_id is None else client_id.encode()
    if len(name) > STRING_LENGTH_MAX:
        raise LocalProtocolError("client_id is too long")
    name_length = -1 if client_id is None else len(name)
    # Header v2 keeps the old format of the client id, so that a broker can read it in any version.
    tail = name + (b"\0" if version >= message.FLEXIBLE_SINCE else b"")
    size_bytes = 10 + len(tail) + sum(map(len, buffers))
    fixed = struct.pack(">ihhih", size_bytes, message.API_KEY, version, correlation_id, name_length)
    buffers[0] = b"".join((fixed, tail, buffers[0]))
    return buffers


def decode_correlation_id(frame: memoryview) -> int:
    """The correlation id of a response frame (without its length)."""
    if len(frame) < 4:
        raise ProtocolError("response frame is cut short")
    return int(_unpack_int32(frame)[0])


def decode_response(cls: type[R], frame: memoryview, version: int) -> R:
    """Decodes the response in a frame (without its length), skipping the header."""
    position = 4
    if response_header_is_flexible(cls, version):
        try:
            position, _ = skip_tags(frame, position, len(frame), len(frame))
        except IndexError as error:
            raise ProtocolError("response header is cut short") from error
    return decode(cls, frame, version, position)


def response_header_is_flexible(message: Response | type[Response], version: int) -> bool:
    # A client does not know the broker's versions until it has read the ApiVersions response, so
    # that response always has header v0 (KIP-511).
    return version >= message.FLEXIBLE_SINCE and message.API_KEY != API_VERSIONS_KEY


def _make_reader(cls: type[Message], version: int) -> Callable[..., Any]:
    _require_version(cls, version)
    flexible = version >= cls.FLEXIBLE_SINCE
    reader = native.reader(compile_reader, cls, version, flexible)
    cls.compiled_readers[version] = reader
    return reader


def _make_writer(cls: type[Message], version: int) -> Callable[..., Any]:
    _require_version(cls, version)
    flexible = version >= cls.FLEXIBLE_SINCE
    writer = native.writer(compile_writer, cls, version, flexible)
    cls.compiled_writers[version] = writer
    return writer


def _make_frame_writer(cls: type[Response], version: int) -> Callable[..., Any]:
    header_is_flexible = response_header_is_flexible(cls, version)

    def write_frame(message: Response, correlation_id: int) -> tuple[Buffers, int]:
        buffers = encode(message, version)
        size_bytes = sum(map(len, buffers))
        if header_is_flexible:
            header = _pack_flexible_header(size_bytes + 5, correlation_id)
        else:
            header = _pack_header(size_bytes + 4, correlation_id)
        buffers[0] = header + buffers[0]
        return buffers, size_bytes + len(header)

    _require_version(cls, version)
    flexible = version >= cls.FLEXIBLE_SINCE
    writer = native.frame_writer(write_frame, cls, version, flexible, header_is_flexible)
    cls.compiled_frame_writers[version] = writer
    return writer


def _require_version(cls: type[Message], version: int) -> None:
    if version not in cls.VERSIONS:
        low, high = cls.VERSIONS
        raise LocalProtocolError(f"{cls.__name__} has versions {low} to {high}, not {version}")
