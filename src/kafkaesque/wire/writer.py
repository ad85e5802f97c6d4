"""Generates the straight-line writer of one (message class, version).

The writer collects small pieces and joins them. Neighbouring fixed-width fields are packed together,
with the fixed length of the variable field that follows. Record buffers are not copied; they go
between the joined pieces, so the result is a list of buffers for one vectored send. The writer does
not validate: a null that the version does not allow raises an error (it has no length and no
attributes), and `wire.codec.encode` then finds the field's name.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from kafkaesque.wire import bounds
from kafkaesque.wire.reader import FORMATS
from kafkaesque.wire.source import Source
from kafkaesque.wire.table import Field, Struct, blank


def compile_writer(cls: type[Struct], version: int, flexible: bool) -> Callable[..., Any]:
    """A function (message) -> list of buffers."""
    return _Writer(version, flexible).compile(cls)


class _Writer:
    def __init__(self, version: int, flexible: bool) -> None:
        self.version = version
        self.flexible = flexible
        self.source = Source(
            {"pack": struct.pack, "uvarint": bounds.uvarint, "UVARINTS": bounds.UVARINTS}
        )
        # Fixed-width items not yet packed: (format, expression). "x" is a zero byte.
        self.run: list[tuple[str, str]] = []
        self.sink = "put"

    def compile(self, cls: type[Struct]) -> Callable[..., Any]:
        source = self.source
        with source.block("def write(o):"):
            source.line("out = []")
            source.line("parts = []")
            source.line("put = parts.append")
            self.struct("o", cls)
            self.flush()
            source.line("if parts or not out: out.append(b''.join(parts))")
            source.line("return out")
        return source.compile("write", f"writer of {cls.__name__} v{self.version}")

    def flush(self) -> None:
        """Emits one pack for all pending fixed-width items."""
        if self.run:
            layout = "".join(fmt for fmt, _ in self.run)
            arguments = ", ".join(expression for _, expression in self.run if expression)
            if layout == "x":
                self.put("b'\\0'")
            else:
                pack = self.source.constant("pack", struct.Struct(">" + layout).pack)
                self.put(f"{pack}({arguments})")
            self.run.clear()

    def put(self, expression: str) -> None:
        self.source.line(f"{self.sink}({expression})")

    def struct(self, name: str, cls: type[Struct]) -> None:
        """Emits the writing of the struct in local `name`. Leaves a pending run."""
        tagged: list[Field] = []
        for field in cls.fields:
            if self.version in field.tagged:
                tagged.append(field)
            elif self.version in field.versions:
                self.value(field, f"{name}.{field.name}")
        if not self.flexible:
            return
        if tagged:
            self.tags(name, sorted(tagged, key=lambda field: field.tag))
        else:
            self.run.append(("x", ""))

    def value(self, field: Field, expression: str) -> None:
        nullable = self.version in field.nullable
        if field.is_array:
            self.array(field, expression, nullable=nullable)
        elif field.struct is not None:
            name = self.source.fresh("o")
            self.source.line(f"{name} = {expression}")
            self.nested(field.struct, name, nullable=nullable)
        else:
            self.scalar(field.scalar, expression, nullable=nullable)

    def nested(self, cls: type[Struct], name: str, *, nullable: bool) -> None:
        if not nullable:
            self.struct(name, cls)
            return
        self.flush()
        with self.source.block(f"if {name} is None:"):
            self.put("b'\\xff'")
        with self.source.block("else:"):
            self.run.append(("b", "1"))
            self.struct(name, cls)
            self.flush()

    def scalar(self, scalar: str, expression: str, *, nullable: bool) -> None:
        if scalar == "Uuid":
            self.run.append(("16s", f"{expression}.bytes"))
        elif scalar in FORMATS:
            self.run.append((FORMATS[scalar], expression))
        else:
            self.sized(scalar, expression, nullable=nullable)

    def length(self, count: str, wide: str) -> None:
        """Emits the writing of a length; leaves it pending if its width is fixed."""
        if self.flexible:
            self.flush()
            self.put(f"UVARINTS[{count} + 1] if {count} < 127 else uvarint({count} + 1)")
        else:
            self.run.append((wide, count))

    def unless_null(self, name: str, wide: str, nullable: bool) -> AbstractContextManager[None]:
        """Emits the null case if `name` is nullable; the returned block is the other case."""
        if not nullable:
            return nullcontext()
        self.flush()
        with self.source.block(f"if {name} is None:"):
            null = b"\0" if self.flexible else b"\xff" * struct.calcsize(wide)
            self.put(repr(null))
        return self.source.block("else:")

    def sized(self, scalar: str, expression: str, *, nullable: bool) -> None:
        """A string, bytes or records: a length and that many bytes."""
        line, name, size = self.source.line, self.source.fresh("s"), self.source.fresh("n")
        wide = "h" if scalar == "String" else "i"
        line(f"{name} = {expression}")
        with self.unless_null(name, wide, nullable):
            if scalar == "String":
                line(f"{name} = {name}.encode()")
            line(f"{size} = len({name})")
            if scalar == "String" and self.flexible:
                line(f"if {size} > {bounds.STRING_LENGTH_MAX}: raise ValueError('string too long')")
            self.length(size, wide)
            self.flush()
            if scalar == "Records":
                with self.source.block(f"if {size}:"):
                    line("out.append(b''.join(parts))")
                    line(f"out.append({name})")
                    line("parts.clear()")
            else:
                self.put(name)

    def array(self, field: Field, expression: str, *, nullable: bool) -> None:
        line, items, count = self.source.line, self.source.fresh("x"), self.source.fresh("n")
        line(f"{items} = {expression}")
        with self.unless_null(items, "i", nullable):
            line(f"{count} = len({items})")
            self.length(count, "i")
            self.flush()
            if field.scalar in FORMATS and field.scalar != "Uuid":
                self.put(f"pack(f'>{{{count}}}{FORMATS[field.scalar]}', *{items})")
                return
            item = self.source.fresh("o")
            with self.source.block(f"for {item} in {items}:"):
                if field.struct is not None:
                    self.struct(item, field.struct)
                else:
                    self.scalar(field.scalar, item, nullable=False)
                self.flush()

    def tags(self, name: str, tagged: list[Field]) -> None:
        """The tagged-field section, by ascending tag. Fields with their default are omitted."""
        self.flush()
        line, found = self.source.line, self.source.fresh("g")
        line(f"{found} = []")
        outer = self.sink
        for field in tagged:
            value, pieces = self.source.fresh("v"), self.source.fresh("p")
            line(f"{value} = {name}.{field.name}")
            with self.source.block(f"if {self.differs(field, value)}:"):
                line(f"{pieces} = []")
                self.sink = f"{pieces}.append"
                self.value(field, value)
                self.flush()
                self.sink = outer
                line(f"{pieces} = b''.join({pieces})")
                line(f"{found} += {bounds.uvarint(field.tag)!r}, uvarint(len({pieces})), {pieces}")
        with self.source.block(f"if {found}:"):
            self.put(f"uvarint(len({found}) // 3)")
            self.put(f"b''.join({found})")
        with self.source.block("else:"):
            self.put("b'\\0'")

    def differs(self, field: Field, value: str) -> str:
        """The condition under which a tagged field must be written."""
        if field.struct is not None and not field.is_array:
            if self.version in field.nullable:
                return f"{value} is not None"
            # An absent struct and one with all defaults are equivalent.
            default = self.source.constant("D", blank(field.struct))
            return f"{value} is not None and {value} != {default}"
        if field.default is None:
            return f"{value} is not None"
        if field.is_array:
            return f"{value} is None or len({value})"
        return f"{value} != {self.source.constant('D', field.default)}"
