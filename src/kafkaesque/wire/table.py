"""The table format: a message is a typed class, and the class is the table.

    class PartitionProduceData(Struct):
        index: Int32 = f("0+")
        records: Records | None = f("0+", nullable="0+")

    class ProduceRequest(Request, key=0, versions="3-13", flexible="9+"):
        transactional_id: String | None = f("3+", nullable="3+", default=None)

mypy sees fields and constructors; the codec sees names, types and version ranges. Declaring a class
is cheap (a broker imports more than a hundred): annotations are resolved and constructors generated
when the class is first used. The encoding is defined elsewhere (`reader`, `writer`).

A field without `default` must be passed to the constructor: these are the fields that exist in every
version and have no default in Kafka's schema.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, TypeAlias, TypeVar, dataclass_transform
from uuid import UUID

from kafkaesque.wire.source import Source

# The codec uses the *name* of the alias in the annotation; mypy uses the aliased type.
Bool: TypeAlias = bool
Int8: TypeAlias = int
Int16: TypeAlias = int
Int32: TypeAlias = int
Int64: TypeAlias = int
UInt16: TypeAlias = int
UInt32: TypeAlias = int
Float64: TypeAlias = float
Uuid: TypeAlias = UUID
String: TypeAlias = str
Bytes: TypeAlias = bytes
Records: TypeAlias = memoryview
"""Record batches, never copied: a slice of a received frame, or a buffer that is sent unchanged."""

SCALARS = frozenset(
    [
        "Bool",
        "Int8",
        "Int16",
        "Int32",
        "Int64",
        "UInt16",
        "UInt32",
        "Float64",
        "Uuid",
        "String",
        "Bytes",
        "Records",
    ]
)
VERSION_MAX = 32767
NO_UUID = UUID(int=0)

_REQUIRED: Any = object()
S = TypeVar("S", bound="Struct")


class Versions(NamedTuple):
    """An inclusive range of versions; empty when `low > high`."""

    low: int
    high: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.low <= version <= self.high


NEVER = Versions(1, 0)


def parse_versions(text: str) -> Versions:
    """Kafka's notation: "3+", "0-12", "4", and "" for none."""
    if not text:
        return NEVER
    if text.endswith("+"):
        return Versions(int(text[:-1]), VERSION_MAX)
    low, _, high = text.partition("-")
    return Versions(int(low), int(high or low))


class _FieldSpec:
    """The arguments of `f`, kept until the class is first used."""

    __slots__ = ("default", "hint", "nullable", "tag", "tagged", "versions")

    def __init__(self, versions: str, nullable: str, tag: int, tagged: str, default: Any) -> None:
        self.versions = versions
        self.nullable = nullable
        self.tag = tag
        self.tagged = tagged
        self.default = default
        self.hint = ""


def f(
    versions: str,
    *,
    nullable: str = "",
    tag: int = -1,
    tagged: str = "",
    default: Any = _REQUIRED,
) -> Any:
    """Declares a field: the versions that have it, that allow null, that have it as tagged field.

    `default` is used by the constructor if the field is omitted and by the reader if the version
    does not have it; a tagged field with this value is not written. A list default is a new list each
    time. `None` for a tagged struct means that it is absent.
    """
    return _FieldSpec(versions, nullable, tag, tagged, default)


class Field(NamedTuple):
    """A field as the code generators see it."""

    name: str
    scalar: str
    """One of SCALARS, or "" if `struct` is set."""
    struct: type[Struct] | None
    is_array: bool
    versions: Versions
    nullable: Versions
    tag: int
    tagged: Versions
    default: Any
    """The value of a missing field. The constructor does not use it if `required`."""
    required: bool


_ZERO: dict[str, Any] = {
    "Bool": False,
    "Float64": 0.0,
    "Uuid": NO_UUID,
    "String": "",
    "Bytes": b"",
    "Records": memoryview(b""),
}


@dataclass_transform(kw_only_default=True, field_specifiers=(f,))
class StructMeta(type):
    """Turns the fields of a class body into slots and keeps their declarations."""

    _specs: dict[str, _FieldSpec]
    _fields: tuple[Field, ...] | None
    compiled_readers: dict[int, Callable[..., Any]]
    """Compiled readers by version, filled by `wire.codec`."""
    compiled_writers: dict[int, Callable[..., Any]]
    compiled_frame_writers: dict[int, Callable[..., Any]]

    def __new__(
        mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **facts: Any
    ) -> StructMeta:
        specs = {key: v for key, v in namespace.items() if type(v) is _FieldSpec}
        hints = namespace.get("__annotations__", {})
        for key, spec in specs.items():
            spec.hint = hints[key]
            del namespace[key]
        namespace["__slots__"] = tuple(specs)
        cls = super().__new__(mcs, name, bases, namespace, **facts)
        cls._specs = specs
        cls._fields = None
        cls.compiled_readers = {}
        cls.compiled_writers = {}
        cls.compiled_frame_writers = {}
        return cls

    def __init__(cls, name: str, bases: tuple[type, ...], namespace: Any, **_facts: Any) -> None:
        super().__init__(name, bases, namespace)

    @property
    def fields(cls) -> tuple[Field, ...]:
        """The fields of this class, in wire order."""
        if cls._fields is None:
            module = vars(sys.modules[cls.__module__])
            cls._fields = tuple(_resolve(name, spec, module) for name, spec in cls._specs.items())
        return cls._fields


def _resolve(name: str, spec: _FieldSpec, module: dict[str, Any]) -> Field:
    text = spec.hint.removesuffix(" | None")
    is_array = text.startswith("list[")
    if is_array:
        text = text[5:-1]
    struct = None if text in SCALARS else module[text]
    default = spec.default
    if default is _REQUIRED:
        default = [] if is_array else None if struct else _ZERO.get(text, 0)
    return Field(
        name=name,
        scalar="" if struct else text,
        struct=struct,
        is_array=is_array,
        versions=parse_versions(spec.versions),
        nullable=parse_versions(spec.nullable),
        tag=spec.tag,
        tagged=parse_versions(spec.tagged),
        default=default,
        required=spec.default is _REQUIRED,
    )


class Struct(metaclass=StructMeta):
    """Base class of messages and of the structs inside them."""

    def __init__(self, **values: Any) -> None:
        # Runs once per class: replaces itself by the generated constructor, then calls that.
        cls = type(self)
        cls.__init__ = _constructor(cls)  # type: ignore[method-assign]
        cls.__init__(self, **values)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, n) == getattr(other, n) for n in type(self)._specs)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in type(self)._specs)
        return f"{type(self).__name__}({values})"


def blank(cls: type[S]) -> S:
    """An instance with every field at its default, including required ones."""
    instance = object.__new__(cls)
    for field in cls.fields:
        is_list = isinstance(field.default, list)
        setattr(instance, field.name, [] if is_list else field.default)
    return instance


def _constructor(cls: type[Struct]) -> Any:
    source = Source({"MISSING": _REQUIRED})
    parameters = ["self", "*"] if cls.fields else ["self"]
    body: list[str] = []
    for field in cls.fields:
        name = field.name
        if field.required:
            parameters.append(name)
            body.append(f"self.{name} = {name}")
        elif isinstance(field.default, list):
            parameters.append(f"{name}=MISSING")
            body.append(f"self.{name} = [] if {name} is MISSING else {name}")
        else:
            parameters.append(f"{name}={source.constant('D', field.default)}")
            body.append(f"self.{name} = {name}")
    with source.block(f"def __init__({', '.join(parameters)}):"):
        for text in body or ["pass"]:
            source.line(text)
    return source.compile("__init__", f"{cls.__name__}.__init__")


class Message(Struct):
    """A request or a response: a struct with an API key and version ranges."""

    API_KEY: ClassVar[int] = -1
    VERSIONS: ClassVar[Versions] = NEVER
    FLEXIBLE_SINCE: ClassVar[int] = VERSION_MAX + 1
    """First version with compact lengths and tagged fields (KIP-482)."""

    def __init_subclass__(
        cls, *, key: int = -1, versions: str = "", flexible: str = "", **facts: Any
    ) -> None:
        super().__init_subclass__(**facts)
        cls.API_KEY = key
        cls.VERSIONS = parse_versions(versions)
        if flexible:
            cls.FLEXIBLE_SINCE = parse_versions(flexible).low


class Request(Message):
    """A message from a client to a broker."""


class Response(Message):
    """A broker's answer to a request."""
