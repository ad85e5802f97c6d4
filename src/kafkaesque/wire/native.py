"""Selects compiled or generated readers and writers. The only place that makes this choice.

`_native` has one engine for all tables, which interprets a plan made here. It exists if a C compiler
was available when the package was built (hatch_build.py); importing it fails if KAFKAESQUE_PURE is
set. The engine calls the generated Python function for everything that it does not handle itself, so
callers see no difference.
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
"""(class, flexible, fields): the description of a struct in one version for `_native.c`."""

_NOT_GIVEN = 255


def make_plan(cls: type[Struct], version: int, flexible: bool) -> Plan:
    return cls, flexible, tuple(_plan_field(field, version, flexible) for field in cls.fields)


def _plan_field(field: Field, version: int, flexible: bool) -> tuple[Any, ...]:
    if version not in field.versions:
        return _module.KINDS["ABSENT"], 0, 1, field.name, field.default, None
    is_array, is_tagged = field.is_array, version in field.tagged
    flags = _module.ARRAY * is_array | _module.TAGGED * is_tagged
    flags |= _module.NULLABLE * (version in field.nullable)
    element_bytes_min = max(1, size_min(field, version, flexible, element=is_array))
    kind = _module.KINDS[field.scalar or "STRUCT"]
    nested = None if field.struct is None else make_plan(field.struct, version, flexible)
    return kind, flags, element_bytes_min, field.name, field.default, nested


def reader(generate: Generate, cls: type[Struct], version: int, flexible: bool) -> Function:
    """(data: memoryview, position: int) -> message."""
    if _module is None:
        return generate(cls, version, flexible)
    pure = _generate_lazily(generate, cls, version, flexible)
    may_trail = issubclass(cls, Request)
    plan = make_plan(cls, version, flexible)
    made: Function = _module.read(pure, plan, bounds.read_uuid, may_trail, ARRAY_ELEMENTS_MAX)
    return made


def writer(generate: Generate, cls: type[Struct], version: int, flexible: bool) -> Function:
    """(message) -> list of buffers."""
    if _module is None:
        return generate(cls, version, flexible)
    pure = _generate_lazily(generate, cls, version, flexible)
    made: Function = _module.write(pure, make_plan(cls, version, flexible))
    return made


def _generate_lazily(
    generate: Generate, cls: type[Struct], version: int, flexible: bool
) -> Function:
    """Generates the function on its first call; most are never called."""
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
    """(frame) -> request header. `rules`: lowest, highest and first flexible version by API key."""
    if _module is None:
        return pure
    table = array("i")
    for key in range(max(rules) + 1):
        table.extend(rules.get(key, (1, 0, 0)))
    made: F = _module.decode_request_header(pure, header, table.tobytes())
    return made


def frame_cutter(pure: F) -> F:
    """The compiled `frames.cut_frames`."""
    if _module is None:
        return pure
    made: F = _module.cut_frames(pure)
    return made


def constructor(cls: type[S], *names: str) -> Callable[..., S]:
    """Returns a constructor of `cls` that takes the fields `names` by position.

    Other fields get their defaults. For the few places where keyword arguments are too slow (3.0
    against 0.5 microseconds for the three structs of a Produce response).
    """

    def construct(*values: Any) -> S:
        return cls(**dict(zip(names, values, strict=True)))

    if _module is None:
        return construct
    fields = tuple((_module.KINDS["ABSENT"], 0, 1, f.name, f.default, None) for f in cls.fields)
    numbers = bytes(names.index(f.name) if f.name in names else _NOT_GIVEN for f in cls.fields)
    made: Callable[..., S] = _module.construct(construct, (cls, False, fields), numbers, len(names))
    return made


def pure(function: F) -> F:
    """The Python function of a compiled one; `function` itself if it is not compiled."""
    bound = getattr(function, "__self__", None)
    found: F = bound[0] if isinstance(bound, tuple) else function
    return found
