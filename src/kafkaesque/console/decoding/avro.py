"""Avro values: container files, single-object encoding, and the schema registry's framing.

Schemas come from a directory (`ID.avsc`, `TOPIC.avsc`, `TOPIC-key.avsc`) or from a schema registry.
Avro cannot be read without the writer's schema; a value whose schema is unknown is shown in another
format.
"""

from __future__ import annotations

import io
import json
import logging
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import fastavro

logger = logging.getLogger(__name__)

CONTAINER_MAGIC: Final = b"Obj\x01"
SINGLE_OBJECT_MAGIC: Final = b"\xc3\x01"
REGISTRY_MAGIC: Final = 0
RECORDS_MAX: Final = 100
REGISTRY_SECONDS_MAX: Final = 3.0
SCHEMA_BYTES_MAX: Final = 1 << 20
SCHEMAS_MAX: Final = 1000

Schema = Any
"""A schema as parsed by fastavro."""

# Raised by fastavro for bytes that do not fit the schema; it has no exception class of its own.
_MISFIT: Final = (EOFError, ValueError, KeyError, IndexError, TypeError, StopIteration,
                  AssertionError, OverflowError, UnicodeDecodeError)  # fmt: skip


class Schemas:
    """Writer schemas by registry id and by topic, cached in a dict that worker threads share."""

    def __init__(self, directory: Path | None = None, registry: str | None = None) -> None:
        if registry is not None and urlsplit(registry).scheme not in ("http", "https"):
            raise ValueError(f"'{registry}' is not an http URL")
        self._directory = directory
        self._registry = registry.rstrip("/") if registry else None
        self._found: dict[str, Schema | None] = {}

    def by_id(self, number: int) -> Schema | None:
        return self._find(str(number), from_registry=True)

    def by_topic(self, topic: str, is_key: bool) -> Schema | None:
        return self._find(f"{topic}-key" if is_key else topic, from_registry=False)

    def _find(self, name: str, from_registry: bool) -> Schema | None:
        if name not in self._found:
            if len(self._found) >= SCHEMAS_MAX:
                self._found.clear()
            document = self._from_directory(name)
            if document is None and from_registry:
                document = self._from_registry(name)
            self._found[name] = document
        return self._found[name]

    def _from_directory(self, name: str) -> Schema | None:
        if self._directory is None or "/" in name or name.startswith("."):
            return None
        path = self._directory / f"{name}.avsc"
        try:
            return _parse(path.read_text()) if path.is_file() else None
        except OSError as error:
            logger.warning("cannot read Avro schema file=%s: %s", path, error)
            return None

    def _from_registry(self, name: str) -> Schema | None:
        if self._registry is None:
            return None
        url = f"{self._registry}/schemas/ids/{name}"
        try:
            with urllib.request.urlopen(url, timeout=REGISTRY_SECONDS_MAX) as answer:  # noqa: S310  http(s) only, see above
                document = json.loads(answer.read(SCHEMA_BYTES_MAX))
        except (OSError, ValueError) as error:
            logger.warning("cannot fetch Avro schema id=%s from the registry: %s", name, error)
            return None
        if not isinstance(document, dict) or document.get("schemaType", "AVRO") != "AVRO":
            return None
        return _parse(str(document.get("schema")))


def _parse(text: str) -> Schema | None:
    try:
        return fastavro.parse_schema(json.loads(text))
    except (ValueError, KeyError, TypeError, fastavro.schema.SchemaParseException,
            fastavro.schema.UnknownType) as error:  # fmt: skip
        logger.warning("invalid Avro schema: %s", error)
        return None


def read_value(data: bytes, schema: Schema) -> Any:
    """The single value in `data`. Raises ValueError if `data` does not match the schema."""
    stream = io.BytesIO(data)
    try:
        value = fastavro.schemaless_reader(stream, schema, None)
    except _MISFIT as error:
        raise ValueError(f"does not match the schema: {error}") from None
    if stream.tell() != len(data):
        raise ValueError("trailing bytes after the value")
    return value


def read_container(data: bytes) -> list[Any]:
    """The first `RECORDS_MAX` values of an Avro container file."""
    values = []
    try:
        for value in fastavro.reader(io.BytesIO(data)):
            values.append(value)
            if len(values) == RECORDS_MAX:
                break
    except _MISFIT as error:
        raise ValueError(f"not an Avro file: {error}") from None
    return values


def registry_id(data: bytes) -> int | None:
    """The schema id in Confluent's framing: a zero byte and a four-byte id."""
    if len(data) >= 5 and data[0] == REGISTRY_MAGIC:
        return int.from_bytes(data[1:5])
    return None
