"""Whether readers and writers are compiled ones. The only place of this package that knows.

`_native` has one engine for all tables, which walks a plan made here. It is there if a C compiler
was when the package was built (hatch_build.py), and refuses to be imported where KAFKAESQUE_PURE is
set. What it does not do itself it hands to the generated Python function that it was made with, so
nobody who calls it can tell which it is.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeAlias, TypeVar

from kafkaesque.model.limits import ARRAY_ELEMENTS_MAX
from kafkaesque.wire import bounds
from kafkaesque.wire.reader import size_min
from kafkaesque.wire.table import Field, Request, Struct

F = TypeVar("F", bound=Callable[..., Any])
S = TypeVar("S", bound=Struct)
Function: TypeAlias = Callable[..., Any]
Generate: TypeAlias = Callable[[type[Struct], int, bool], Function]
"""compile_reader or compile_writer."""

try:
    from kafkaesque.wire import _native
except ImportError:
    _module: Any = None
else:
    _module = _native

Plan = tuple[type[Struct], bool, tuple[tuple[Any, ...], ...]]
"""(class, flexible, fields): what `_native.c` knows of a struct in one version."""

_KINDS = [
    "ABSENT", "Bool", "Int8", "Int16", "Int32", "Int64", "UInt16", "UInt32", "Float64", "Uuid",
    "String", "Bytes", "Records", "STRUCT",
]  # fmt: skip
"""As the enum in `_native.c`."""
_ABSENT = 0
_ARRAY, _NULLABLE, _TAGGED = 1, 2, 4
_NOT_GIVEN = 255


def make_plan(cls: type[Struct], version: int, flexible: bool) -> Plan:
    return cls, flexible, tuple(_plan_field(field, version, flexible) for field in cls.fields)


def _plan_field(field: Field, version: int, flexible: bool) -> tuple[Any, ...]:
    if version not in field.versions:
        return _ABSENT, 0, 1, field.name, field.default, None
    is_array, is_tagged = field.is_array, version in field.tagged
    flags = _ARRAY * is_array | _NULLABLE * (version in field.nullable) | _TAGGED * is_tagged
    element_bytes_min = max(1, size_min(field, version, flexible, element=is_array))
    kind = _KINDS.index(field.scalar or "STRUCT")
    nested = None if field.struct is None else make_plan(field.struct, version, flexible)
    return kind, flags, element_bytes_min, field.name, field.default, nested


def reader(generate: Generate, cls: type[Struct], version: int, flexible: bool) -> Function:
    """(data: memoryview, position: int) -> message."""
    if _module is None:
        return generate(cls, version, flexible)
    pure = _when_asked(generate, cls, version, flexible)
    may_trail = issubclass(cls, Request)
    plan = make_plan(cls, version, flexible)
    made: Function = _module.read(pure, plan, bounds.read_uuid, may_trail, ARRAY_ELEMENTS_MAX)
    return made


def writer(generate: Generate, cls: type[Struct], version: int, flexible: bool) -> Function:
    """(message) -> list of buffers."""
    if _module is None:
        return generate(cls, version, flexible)
    pure = _when_asked(generate, cls, version, flexible)
    made: Function = _module.write(pure, make_plan(cls, version, flexible))
    return made


def _when_asked(generate: Generate, cls: type[Struct], version: int, flexible: bool) -> Function:
    """Generated code is not even made until it is needed: most of it never is."""
    generated = cache(lambda: generate(cls, version, flexible))
    return lambda *arguments: generated()(*arguments)


def frame_writer(
    pure: F, cls: type[Struct], version: int, flexible: bool, header_is_flexible: bool
) -> F:
    """(message, correlation id) -> list of buffers and their size."""
    if _module is None:
        return pure
    made: F = _module.write_frame(pure, make_plan(cls, version, flexible), header_is_flexible)
    return made


def header_reader(pure: F, header: type, rules: Mapping[int, tuple[int, int, int]]) -> F:
    """(frame) -> request header; `rules` are lowest, highest and first flexible version by key."""
    if _module is None:
        return pure
    table = array("i")
    for key in range(max(rules) + 1):
        table.extend(rules.get(key, (1, 0, 0)))
    made: F = _module.decode_request_header(pure, header, table.tobytes())
    return made


def frame_cutter(pure: F) -> F:
    """As `frames.cut_frames`."""
    if _module is None:
        return pure
    made: F = _module.cut_frames(pure)
    return made


def constructor(cls: type[S], *names: str) -> Callable[..., S]:
    """A function that makes a `cls` of the fields named, given by position; the others have their
    defaults. For the few places where calls by keyword are too slow (3.0 against 0.5 microseconds
    for the three structs of a Produce answer)."""

    def construct(*values: Any) -> S:
        return cls(**dict(zip(names, values, strict=True)))

    if _module is None:
        return construct
    fields = tuple((_ABSENT, 0, 1, f.name, f.default, None) for f in cls.fields)
    numbers = bytes(names.index(f.name) if f.name in names else _NOT_GIVEN for f in cls.fields)
    made: Callable[..., S] = _module.construct(construct, (cls, False, fields), numbers, len(names))
    return made


def pure(function: F) -> F:
    """The Python function behind a compiled one; itself where nothing is compiled."""
    bound = getattr(function, "__self__", None)
    found: F = bound[0] if isinstance(bound, tuple) else function
    return found
