"""Generates the straight-line reader of one (message class, version).

The reader is one function that makes no calls in the common case. Neighbouring fixed-width fields are
unpacked together, with the first byte (or the fixed length) of the variable field that follows,
directly into the slots of the new object. Reading past the end raises struct.error or IndexError,
which `wire.codec.decode` turns into ProtocolError. What would fail silently (a slice that is too
short) or be expensive (a count that allocates) is checked inline, before anything is allocated.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from kafkaesque.model.errors import ProtocolError
from kafkaesque.model.limits import ARRAY_ELEMENTS_MAX
from kafkaesque.wire import bounds
from kafkaesque.wire.source import Source
from kafkaesque.wire.table import Field, Request, Struct, blank

FORMATS = {
    "Bool": "?",
    "Int8": "b",
    "Int16": "h",
    "Int32": "i",
    "Int64": "q",
    "UInt16": "H",
    "UInt32": "I",
    "Float64": "d",
    "Uuid": "16s",
}
"""Format characters of the struct module for fixed-width scalars."""


def size_min(field: Field, version: int, flexible: bool, *, element: bool = False) -> int:
    """The minimum size of a value of this field, or of one `element` of an array field."""
    if field.is_array and not element:
        return 1 if flexible else 4
    if field.struct is not None:
        nullable = not element and version in field.nullable
        return 1 if nullable else struct_size_min(field.struct, version, flexible)
    if field.scalar in FORMATS:
        return struct.calcsize(">" + FORMATS[field.scalar])
    if flexible:
        return 1
    return 2 if field.scalar == "String" else 4


def struct_size_min(cls: type[Struct], version: int, flexible: bool) -> int:
    sizes = (
        size_min(field, version, flexible)
        for field in cls.fields
        if version in field.versions and version not in field.tagged
    )
    return sum(sizes) + flexible


def compile_reader(cls: type[Struct], version: int, flexible: bool) -> Callable[..., Any]:
    """A function (data: memoryview, position: int) -> instance of `cls`."""
    reader = _Reader(version, flexible)
    return reader.compile(cls)


class _Reader:
    def __init__(self, version: int, flexible: bool) -> None:
        self.version = version
        self.flexible = flexible
        self.source = Source(
            {
                "new": object.__new__,
                "unpack_from": struct.unpack_from,
                "read_uvarint": bounds.read_uvarint,
                "read_uuid": bounds.read_uuid,
                "skip_tags": bounds.skip_tags,
                "charge_tags": bounds.charge_tags,
                "over_budget": bounds.over_budget,
                "bad_length": bounds.bad_length,
                "bad_tag": bounds.bad_tag,
                "trailing": bounds.trailing,
                "ProtocolError": ProtocolError,
            }
        )
        # Fixed-width items not yet unpacked: (format, assignment target).
        self.run: list[tuple[str, str]] = []
        self.after_run: list[str] = []

    def compile(self, cls: type[Struct]) -> Callable[..., Any]:
        source = self.source
        with source.block("def read(data, pos):"):
            source.line("end = len(data)")
            source.line(f"budget = {ARRAY_ELEMENTS_MAX}")
            self.struct("o", cls)
            self.flush()
            if not issubclass(cls, Request):
                # Requests may have trailing bytes, as in Kafka: librdkafka 2.16 writes the null
                # array of Metadata v13 three bytes too long.
                source.line("if pos != end: raise trailing(end - pos)")
            source.line("return o")
        return source.compile("read", f"reader of {cls.__name__} v{self.version}")

    def flush(self) -> None:
        """Emits one unpack for all pending fixed-width items."""
        if [fmt for fmt, _ in self.run] == ["B"]:  # indexing beats unpacking for a lone byte
            self.source.line(f"{self.run.pop()[1]} = data[pos]")
            self.source.line("pos += 1")
        elif self.run:
            layout = struct.Struct(">" + "".join(fmt for fmt, _ in self.run))
            unpack = self.source.constant("unpack", layout.unpack_from)
            targets = "".join(f"{target}, " for _, target in self.run)
            self.source.line(f"{targets.strip()} = {unpack}(data, pos)")
            self.source.line(f"pos += {layout.size}")
            for text in self.after_run:
                self.source.line(text)
            self.run.clear()
            self.after_run.clear()

    def struct(self, name: str, cls: type[Struct]) -> None:
        """Emits the reading of a struct into the new local `name`. Leaves a pending run."""
        line = self.source.line
        self.flush()
        line(f"{name} = new({self.source.constant('C', cls)})")
        tagged: list[Field] = []
        for field in cls.fields:
            target = f"{name}.{field.name}"
            present = self.version in field.versions
            if present and self.version not in field.tagged:
                self.value(field, target)
                continue
            if present:
                tagged.append(field)
            line(f"{target} = {self.default(field)}")
        if self.flexible:
            self.tags(name, tagged)

    def default(self, field: Field) -> str:
        value = field.default
        if isinstance(value, list):
            return "[]"
        if value is None or isinstance(value, (bool, int, str)):
            return repr(value)
        return self.source.constant("D", value)

    def value(self, field: Field, target: str) -> None:
        if field.is_array:
            self.array(field, target)
        elif field.struct is not None:
            self.nested(field.struct, target, nullable=self.version in field.nullable)
        else:
            self.scalar(field, target, nullable=self.version in field.nullable)

    def nested(self, cls: type[Struct], target: str, *, nullable: bool) -> None:
        name = self.source.fresh("o")
        guard: AbstractContextManager[None] = nullcontext()
        if nullable:
            # KIP-893: a signed byte, negative for null, in flexible and older versions alike.
            flag = self.source.fresh("n")
            self.run.append(("b", flag))
            self.flush()
            with self.source.block(f"if {flag} < 0:"):
                self.source.line(f"{target} = None")
            guard = self.source.block("else:")
        with guard:
            self.struct(name, cls)
            self.flush()
            self.source.line(f"{target} = {name}")

    def scalar(self, field: Field, target: str, *, nullable: bool) -> None:
        if field.scalar == "Uuid":
            raw = self.source.fresh("u")
            self.run.append(("16s", raw))
            self.after_run.append(f"{target} = read_uuid({raw})")
        elif field.scalar in FORMATS:
            self.run.append((FORMATS[field.scalar], target))
        else:
            self.sized(field, target, nullable=nullable)

    def length(self, wide: str) -> str:
        """Emits the reading of a length or count (-1 for null) and returns its local name."""
        name = self.source.fresh("n")
        if not self.flexible:
            self.run.append((wide, name))
            self.flush()
            return name
        self.run.append(("B", name))
        self.flush()
        self.source.line(f"if {name} > 127: {name}, pos = read_uvarint(data, pos - 1)")
        self.source.line(f"{name} -= 1")
        return name

    def unless_null(self, length: str, target: str, nullable: bool) -> AbstractContextManager[None]:
        """Emits the null case if the field is nullable; the returned block is the other case."""
        if not nullable:
            return nullcontext()
        with self.source.block(f"if {length} == -1:"):
            self.source.line(f"{target} = None")
        return self.source.block("else:")

    def sized(self, field: Field, target: str, *, nullable: bool) -> None:
        """A string, bytes or records: a length and that many bytes."""
        line, is_string = self.source.line, field.scalar == "String"
        size = self.length("h" if is_string else "i")
        stop = self.source.fresh("q")
        upper = f" or {size} > {bounds.STRING_LENGTH_MAX}" if is_string and self.flexible else ""
        value = {
            "String": f"data[pos:{stop}].tobytes().decode()",
            "Bytes": f"data[pos:{stop}].tobytes()",
            "Records": f"data[pos:{stop}]",
        }[field.scalar]
        refusal = f"raise bad_length({field.name!r}, {size}, end - pos)"
        with self.unless_null(size, target, nullable):
            line(f"{stop} = pos + {size}")
            line(f"if {size} < 0 or {stop} > end{upper}: {refusal}")
            line(f"{target} = {value}")
            line(f"pos = {stop}")

    def array(self, field: Field, target: str) -> None:
        line = self.source.line
        count = self.length("i")
        with self.unless_null(count, target, self.version in field.nullable):
            # No element is empty, so the remaining bytes bound the count.
            least = max(1, size_min(field, self.version, self.flexible, element=True))
            line(
                f"if {count} < 0 or {count} * {least} > end - pos: "
                f"raise bad_length({field.name!r}, {count}, end - pos)"
            )
            line(f"budget -= {count}")
            line(f"if budget < 0: raise over_budget({field.name!r})")
            self.elements(field, target, count)

    def elements(self, field: Field, target: str, count: str) -> None:
        line = self.source.line
        if field.scalar in FORMATS and field.scalar != "Uuid":
            code = FORMATS[field.scalar]
            line(f"{target} = list(unpack_from(f'>{{{count}}}{code}', data, pos))")
            line(f"pos += {count} * {struct.calcsize('>' + code)}")
            return
        items, item = self.source.fresh("x"), self.source.fresh("o")
        line(f"{items} = {target} = []")
        with self.source.block(f"for _ in range({count}):"):
            if field.struct is not None:
                self.struct(item, field.struct)
            else:
                self.scalar(field, item, nullable=False)
            self.flush()
            line(f"{items}.append({item})")

    def tags(self, name: str, tagged: list[Field]) -> None:
        """The tagged-field section at the end of every struct in a flexible version."""
        line, count = self.source.line, self.source.fresh("t")
        self.run.append(("B", count))
        self.flush()
        if not tagged:
            line(f"if {count}: pos, budget = skip_tags(data, pos - 1, end, budget)")
            return
        tag, size, stop = (self.source.fresh(stem) for stem in ("t", "n", "q"))
        with self.source.block(f"if {count}:"):
            line(f"{count}, pos = read_uvarint(data, pos - 1)")
            line(f"budget = charge_tags({count}, budget)")
            with self.source.block(f"for _ in range({count}):"):
                line(f"{tag}, pos = read_uvarint(data, pos)")
                line(f"{size}, pos = read_uvarint(data, pos)")
                line(f"{stop} = pos + {size}")
                line(f"if {stop} > end: raise bad_length('tagged field', {size}, end - pos)")
                word = "if"
                for field in tagged:
                    with self.source.block(f"{word} {tag} == {field.tag}:"):
                        target = f"{name}.{field.name}"
                        self.value(field, target)
                        self.flush()
                        line(f"if pos != {stop}: raise bad_tag({field.name!r})")
                        if field.struct is not None and not field.is_array:
                            # A struct with all defaults is equivalent to an absent one.
                            default = self.source.constant("D", blank(field.struct))
                            line(f"if {target} == {default}: {target} = None")
                    word = "elif"
                with self.source.block("else:"):
                    line(f"pos = {stop}")
