"""Print a `kafkaesque.wire.messages` module from the schemas inside a kafka-clients jar.

    python tools/schema_tables.py kafka-clients-4.3.0.jar Produce > .../messages/produce.py
    python tools/schema_tables.py kafka-clients-4.3.0.jar --into src/kafkaesque/wire/messages \
        Produce Fetch

Only facts are taken over: names, types, version ranges, tags, defaults. A version that the schema
marks as unstable is left out. A field has a default unless every version carries it and the schema
names none (the constructor then insists on it); throttle times default to 0 always.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import zipfile
from pathlib import Path
from typing import Any

SCALARS = {
    "bool": "Bool",
    "int8": "Int8",
    "int16": "Int16",
    "int32": "Int32",
    "int64": "Int64",
    "uint16": "UInt16",
    "uint32": "UInt32",
    "float64": "Float64",
    "uuid": "Uuid",
    "string": "String",
    "bytes": "Bytes",
    "records": "Records",
}
ZEROS = {"Bool": "False", "Float64": "0.0", "Uuid": "NO_UUID", "String": '""', "Bytes": 'b""'}

Json = dict[str, Any]


def snake(name: str) -> str:
    text = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name)
    return text.lower()


def bounds(text: str) -> tuple[int, int]:
    if text == "none" or not text:
        return (1, 0)
    if text.endswith("+"):
        return (int(text[:-1]), 32767)
    low, _, high = text.partition("-")
    return (int(low), int(high or low))


class Module:
    """One API: its classes in the order in which they must be declared."""

    def __init__(self, api: str, unstable: bool) -> None:
        self.api = api
        self.unstable = unstable
        self.classes: dict[str, str] = {}
        self.imports: set[str] = {"f"}

    def add_message(self, schema: Json) -> None:
        low, high = bounds(schema["validVersions"])
        high -= self.unstable
        shared = {struct["name"]: struct["fields"] for struct in schema.get("commonStructs", [])}
        base = "Request" if schema["type"] == "request" else "Response"
        self.imports.add(base)
        facts = f'key={schema["apiKey"]}, versions="{low}-{high}"'
        if low == high:
            facts = f'key={schema["apiKey"]}, versions="{low}"'
        if schema["flexibleVersions"] != "none":
            facts += f', flexible="{schema["flexibleVersions"]}"'
        body = self.body(schema["fields"], shared, (low, high))
        self.declare(schema["name"], f"class {schema['name']}({base}, {facts}):\n{body}")

    def declare(self, name: str, text: str) -> None:
        if self.classes.setdefault(name, text) != text:
            raise SystemExit(f"{self.api}: {name} has two different meanings; rename one by hand")

    def declare_struct(self, name: str, body: str) -> str:
        """The name it got: where the request has another struct of that name (DescribeQuorum), the
        response's is told apart."""
        text = f"class {name}(Struct):\n{body}"
        if self.classes.get(name, text) != text:
            name = f"Response{name}"
            text = f"class {name}(Struct):\n{body}"
        self.declare(name, text)
        return name

    def body(self, fields: list[Json], shared: dict[str, Any], valid: tuple[int, int]) -> str:
        lines = []
        for field in fields:
            low, high = bounds(field["versions"])
            if low <= valid[1] and high >= valid[0]:
                within = (max(low, valid[0]), min(high, valid[1]))
                lines.append(self.field(field, shared, valid, within))
        return "\n".join(lines) or "    pass"

    def field(
        self, field: Json, shared: dict[str, Any], valid: tuple[int, int], within: tuple[int, int]
    ) -> str:
        """One line. `valid` are the versions of the struct, `within` those that carry the field."""
        kafka_type: str = field["type"]
        is_array = kafka_type.startswith("[]")
        inner = kafka_type.removeprefix("[]")
        scalar = SCALARS.get(inner)
        if scalar:
            self.imports.add(scalar)
        else:
            self.imports.add("Struct")
            body = self.body(field.get("fields") or shared[inner], shared, within)
            inner = self.declare_struct(inner, body)
        hint = f"list[{scalar or inner}]" if is_array else scalar or inner
        facts = [f'"{field["versions"]}"']
        optional = "nullableVersions" in field
        if optional:
            facts.append(f'nullable="{field["nullableVersions"]}"')
        if "tag" in field:
            facts.append(f'tag={field["tag"]}, tagged="{field["taggedVersions"]}"')
        default = self.default(field, scalar, is_array, always=within == valid)
        if default is not None:
            facts.append(f"default={default}")
        if optional or default == "None":
            hint += " | None"
        return f"    {snake(field['name'])}: {hint} = f({', '.join(facts)})"

    def default(
        self, field: Json, scalar: str | None, is_array: bool, *, always: bool
    ) -> str | None:
        if "default" in field:
            return self.literal(field["default"], scalar)
        if always and "tag" not in field and field["name"] != "ThrottleTimeMs":
            return None
        if is_array:
            return "[]"
        if scalar == "Records" or not scalar:
            return "None"
        if scalar == "Uuid":
            self.imports.add("NO_UUID")
        return ZEROS.get(scalar, "0")

    def literal(self, value: Any, scalar: str | None) -> str:
        text = str(value)
        if text == "null":
            return "None"
        if scalar == "Bool":
            return text.capitalize()
        if scalar == "String":
            return json.dumps(text)
        return str(int(text, 0)) if scalar != "Float64" else str(float(text))

    def text(self) -> str:
        key = next(
            re.search(r"key=(\d+)", text) for text in self.classes.values() if "key=" in text
        )
        doc = f'"""{self.api}, API key {key[1] if key else "?"} (tables only)."""'
        names = ", ".join(sorted(self.imports))
        head = f"{doc}\n\nfrom __future__ import annotations\n\n"
        head += f"from kafkaesque.wire.table import {names}\n"
        return head + "".join(f"\n\n{text}\n" for text in self.classes.values())


def load(jar: zipfile.ZipFile, name: str) -> Json:
    text = jar.read(f"common/message/{name}.json").decode()
    schema: Json = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
    return schema


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("jar", type=Path)
    parser.add_argument("api", nargs="+", help="API names as Kafka spells them: Produce, Fetch")
    parser.add_argument("--into", type=Path, help="write one module per API into this folder")
    options = parser.parse_args()
    with zipfile.ZipFile(options.jar) as jar:
        for api in options.api:
            schemas = [load(jar, api + kind) for kind in ("Request", "Response")]
            module = Module(api, any(schema.get("latestVersionUnstable") for schema in schemas))
            for schema in schemas:
                module.add_message(schema)
            if options.into:
                (options.into / f"{snake(api)}.py").write_text(module.text())
            else:
                sys.stdout.write(module.text())


if __name__ == "__main__":
    main()
