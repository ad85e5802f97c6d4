"""Detects the format of bytes: JSON, Avro, text, MessagePack, Protobuf or plain bytes, in this order.

The result is plain data, which pages show as text. Nothing in it is evaluated.
"""

from __future__ import annotations

import string
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from kafkaesque.console.decoding.avro import (
    CONTAINER_MAGIC,
    SINGLE_OBJECT_MAGIC,
    Schemas,
    read_container,
    read_value,
    registry_id,
)
from kafkaesque.console.decoding.protobuf_wire import NotProtobuf, read_message

KINDS: Final = ("auto", "json", "avro", "protobuf", "msgpack", "text", "hex")
DECODED_BYTES_MAX: Final = 4 << 20
"""Larger values are shown as bytes, because decoding them would take too long."""
DEPTH_SHOWN_MAX: Final = 64

_json = msgspec.json.Decoder()
_msgpack = msgspec.msgpack.Decoder()
_JSON_STARTS: Final = frozenset(b'{["-0123456789tfn \t\r\n')
_WHITESPACE: Final = frozenset("\r\n\t")
_ASCII_TEXT: Final = bytes(string.printable[:-2], "ascii")
_UNREADABLE: Final = (msgspec.DecodeError, ValueError, RecursionError, NotProtobuf)


@dataclass(frozen=True, slots=True)
class Decoded:
    """`kind` is one of KINDS or `null`; `value` is plain data (dict, list, str, number, ...)."""

    kind: str
    value: Any
    schema_id: int | None = None


NULL: Final = Decoded("null", None)


class Decoder:
    """Decodes keys and values of one topic; `wanted` is the format that the user chose."""

    def __init__(self, topic: str, schemas: Schemas, wanted: str = "auto") -> None:
        self._topic = topic
        self._schemas = schemas
        self._wanted = wanted if wanted in KINDS else "auto"

    def decode(self, data: bytes | None, is_key: bool = False) -> Decoded:
        if data is None:
            return NULL
        if len(data) > DECODED_BYTES_MAX:
            return Decoded("hex", data[:1024].hex())
        if self._wanted != "auto":
            try:
                return self._forced(data, is_key)
            except _UNREADABLE:
                return self._plain(data)
        return self._detected(data, is_key)

    def _forced(self, data: bytes, is_key: bool) -> Decoded:
        match self._wanted:
            case "json":
                return Decoded("json", _json.decode(data))
            case "msgpack":
                return Decoded("msgpack", plain(_msgpack.decode(data)))
            case "protobuf":
                return Decoded("protobuf", read_message(data))
            case "text":
                return Decoded("text", data.decode(errors="replace"))
            case "avro":
                found = self._avro(data, is_key)
                return found if found is not None else self._plain(data)
        return Decoded("hex", data.hex())

    def _detected(self, data: bytes, is_key: bool) -> Decoded:
        if not data:
            return Decoded("text", "")
        if data[0] in _JSON_STARTS:
            try:
                return Decoded("json", _json.decode(data))
            except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
                pass
        found = self._avro(data, is_key)
        if found is not None:
            return found
        text = printable(data)
        if text is not None:
            return Decoded("text", text)
        return self._binary(data)

    def _binary(self, data: bytes) -> Decoded:
        # Only maps and arrays: any single byte below 0x80 is a complete MessagePack integer.
        if data[0] >> 4 in (8, 9) or data[0] in (0xDC, 0xDD, 0xDE, 0xDF):
            try:
                return Decoded("msgpack", plain(_msgpack.decode(data)))
            except (msgspec.DecodeError, RecursionError, ValueError):
                pass
        try:
            return Decoded("protobuf", read_message(data))
        except NotProtobuf:
            return Decoded("hex", data.hex())

    def _avro(self, data: bytes, is_key: bool) -> Decoded | None:
        number = registry_id(data)
        try:
            if data.startswith(CONTAINER_MAGIC):
                return Decoded("avro", plain(read_container(data)))
            if number is not None and (schema := self._schemas.by_id(number)) is not None:
                return Decoded("avro", plain(read_value(data[5:], schema)), number)
            schema = self._schemas.by_topic(self._topic, is_key)
            if schema is not None:
                # Single-object encoding starts with two magic bytes and the schema's fingerprint.
                start = (
                    10 if data.startswith(SINGLE_OBJECT_MAGIC) else 5 if number is not None else 0
                )
                return Decoded("avro", plain(read_value(data[start:], schema)), number)
        except (ValueError, RecursionError):
            return None
        return None

    def _plain(self, data: bytes) -> Decoded:
        text = printable(data)
        return Decoded("hex", data.hex()) if text is None else Decoded("text", text)


def printable(data: bytes) -> str | None:
    """`data` as text, or None if it has characters that are not printable."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    if not data.translate(None, _ASCII_TEXT):
        return text
    for letter in text:
        if not letter.isprintable() and letter not in _WHITESPACE:
            return None
    return text


def plain(value: Any, depth: int = 0) -> Any:
    """`value` as JSON-compatible data: bytes as hex, keys as strings, deep nesting as `...`."""
    if depth > DEPTH_SHOWN_MAX:
        return "..."
    if isinstance(value, dict):
        return {_name(key): plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, depth + 1) for item in value]
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return str(value)


def _name(key: Any) -> str:
    return key if isinstance(key, str) else str(plain(key))
