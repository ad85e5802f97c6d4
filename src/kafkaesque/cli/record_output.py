"""Formats records as bytes: values, templates, JSON lines. Pure; accepts any object like a Message."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from kafkaesque.cli.render import iso_time
from kafkaesque.cli.terminal_text import LINES, visible_bytes, visible_json

TIMESTAMP_TYPES = {1: "create_time", 2: "log_append_time"}


class MessageLike(Protocol):
    """The methods of confluent_kafka.Message that the formatters use."""

    def topic(self) -> str | None: ...
    def partition(self) -> int | None: ...
    def offset(self) -> int | None: ...
    def key(self) -> bytes | None: ...
    def value(self) -> bytes | None: ...
    def headers(self) -> Any: ...
    def timestamp(self) -> tuple[int, int]: ...


Formatter = Callable[[MessageLike], bytes]


@dataclass(frozen=True)
class OutputFormat:
    """How records become bytes."""

    template: str | None = None
    as_json: bool = False
    with_key: bool = False
    with_headers: bool = False
    key_separator: bytes = b"\t"
    delimiter: bytes = b"\n"
    null_marker: bytes = b""
    as_hex: bool = False
    as_base64: bool = False
    for_terminal: bool = False
    """Control characters in records become visible escapes; otherwise the bytes are exact."""


def make_formatter(form: OutputFormat) -> Formatter:
    """A function that formats one record. Raises ValueError."""
    if form.as_json:
        return lambda record: _dump(record_object(record, as_hex=form.as_hex), form)
    if form.template is not None:
        return compile_template(form.template, form)
    if not form.with_key and not form.with_headers:
        return lambda record: _value_text(record, form) + form.delimiter
    parts: list[Formatter] = []
    if form.with_headers:
        parts.append(lambda record: _headers_text(record, form))
    if form.with_key:
        parts.append(lambda record: _text(record.key(), form))
    parts.append(lambda record: _value_text(record, form))
    return lambda record: form.key_separator.join(p(record) for p in parts) + form.delimiter


def _dump(value: Any, form: OutputFormat) -> bytes:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return (visible_json(text) if form.for_terminal else text).encode() + b"\n"


def _shown(data: bytes, form: OutputFormat, keep: str = "") -> bytes:
    return visible_bytes(data, keep) if form.for_terminal else data


def _value_text(record: MessageLike, form: OutputFormat) -> bytes:
    """The value. It may have several lines on a terminal, unlike keys and headers."""
    return _text(record.value(), form, LINES)


def _text(data: bytes | None, form: OutputFormat, keep: str = "") -> bytes:
    if data is None:
        return form.null_marker
    if form.as_hex:
        return data.hex().encode()
    return base64.b64encode(data) if form.as_base64 else _shown(data, form, keep)


def _headers_text(record: MessageLike, form: OutputFormat) -> bytes:
    pairs = record.headers() or []
    return b",".join(
        _shown(name.encode(), form) + b"=" + _text(value, form) for name, value in pairs
    )


def record_object(record: MessageLike, *, as_hex: bool = False) -> dict[str, Any]:
    """A record as JSON. Bytes that are not UTF-8 are in `key_base64` or `value_base64` instead of
    `key` or `value`; headers are an object, or a list of pairs if a name repeats."""
    kind, timestamp_ms = record.timestamp()
    fields: dict[str, Any] = {
        "topic": record.topic(),
        "partition": record.partition(),
        "offset": record.offset(),
        "timestamp": timestamp_ms if kind in TIMESTAMP_TYPES else None,
        "timestamp_type": TIMESTAMP_TYPES.get(kind),
    }
    for name, data in (("key", record.key()), ("value", record.value())):
        if as_hex:
            fields[f"{name}_hex"] = None if data is None else data.hex()
            continue
        text = _utf8(data)
        if data is None or text is not None:
            fields[name] = text
        else:
            fields[f"{name}_base64"] = base64.b64encode(data).decode()
    pairs = [[name, _header_value(value)] for name, value in record.headers() or []]
    unique = len({name for name, _ in pairs}) == len(pairs)
    fields["headers"] = dict(pairs) if unique else pairs
    return fields


def _utf8(data: bytes | None) -> str | None:
    try:
        return None if data is None else data.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _header_value(data: bytes | str | None) -> Any:
    if data is None or isinstance(data, str):
        return data
    text = _utf8(data)
    return text if text is not None else {"base64": base64.b64encode(data).decode()}


_TOKEN = re.compile(r"%(.)|\\x([0-9a-fA-F]{2})|\\(.)", re.DOTALL)
_ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\"}


def unescape(text: str) -> bytes:
    r"""`\n`, `\t`, `\r`, `\0`, `\\` and `\xHH` in an option, as bytes."""
    out, last = bytearray(), 0
    for match in re.finditer(r"\\x([0-9a-fA-F]{2})|\\(.)", text, re.DOTALL):
        out += text[last : match.start()].encode()
        code, letter = match.groups()
        out += bytes.fromhex(code) if code else _ESCAPES.get(letter, match.group().encode())
        last = match.end()
    return bytes(out + text[last:].encode())


def _number(value: int | None) -> bytes:
    return str(-1 if value is None else value).encode()


def _size(data: bytes | None) -> bytes:
    return _number(None if data is None else len(data))


def compile_template(template: str, form: OutputFormat) -> Formatter:
    """A format like kcat's: %t topic, %p partition, %o offset, %k key, %s value, %h headers,
    %T timestamp in ms, %d timestamp in ISO form, %K and %S sizes of key and value (-1 for null), %%.

    As with kcat, no line end is added. Raises ValueError on an unknown letter.
    """
    tokens: dict[str, Formatter] = {
        "t": lambda record: _shown((record.topic() or "").encode(), form),
        "p": lambda record: _number(record.partition()),
        "o": lambda record: _number(record.offset()),
        "k": lambda record: _text(record.key(), form),
        "s": lambda record: _value_text(record, form),
        "h": lambda record: _headers_text(record, form),
        "T": lambda record: _number(record.timestamp()[1]),
        "d": lambda record: iso_time(max(record.timestamp()[1], 0)).encode(),
        "K": lambda record: _size(record.key()),
        "S": lambda record: _size(record.value()),
    }
    parts: list[Formatter | bytes] = []
    last = 0
    for match in _TOKEN.finditer(template):
        parts.append(template[last : match.start()].encode())
        letter, last = match.group(1), match.end()
        if letter is None:
            parts.append(unescape(match.group()))
        elif letter == "%":
            parts.append(b"%")
        elif letter in tokens:
            parts.append(tokens[letter])
        else:
            raise ValueError(f"%{letter} is unknown: use %{' %'.join(tokens)} or %%")
    parts.append(template[last:].encode())
    return lambda record: b"".join(p if isinstance(p, bytes) else p(record) for p in parts)
