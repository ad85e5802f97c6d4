"""Parses records from bytes: lines, JSON lines, or one raw value.

An invalid record raises InputError with its line number.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import IO, Any

from kafkaesque.admin.record_writer import OutgoingRecord
from kafkaesque.cli.offset_spec import parse_time_ms
from kafkaesque.model.limits import BATCH_SIZE_BYTES_MAX
from kafkaesque.model.setting import INT32_MAX, INT64_MAX

Headers = list[tuple[str, bytes | None]]
RECORD_SIZE_BYTES_MAX = BATCH_SIZE_BYTES_MAX
"""Longest line that is read: a file without line ends must not fill the memory."""

_JSON_KEY_FIELDS = frozenset({"key", "key_base64", "key_hex"})
_JSON_FIELDS = _JSON_KEY_FIELDS | frozenset(
    {"value", "value_base64", "value_hex", "headers", "partition", "timestamp"}
    | {"topic", "offset", "timestamp_type"}
)


class InputError(ValueError):
    """The input does not match the format."""


@dataclass(frozen=True)
class InputFormat:
    """How bytes become records."""

    name: str = "lines"
    key_separator: bytes | None = None
    null_marker: bytes | None = None
    is_base64: bool = False


def read_records(
    stream: IO[bytes], form: InputFormat, template: OutgoingRecord
) -> Iterator[OutgoingRecord]:
    """Records of `stream`; fields that a record does not set come from `template`."""
    if form.name == "raw":
        value = stream.read(RECORD_SIZE_BYTES_MAX + 1)
        if len(value) > RECORD_SIZE_BYTES_MAX:
            raise InputError(f"larger than {RECORD_SIZE_BYTES_MAX} bytes: too large for one record")
        yield template._replace(number=1, value=_decode(value, form, 1))
        return
    parse = parse_json_line if form.name == "json" else parse_line
    for number, line in enumerate(_lines(stream), 1):
        if form.name == "json" and not line.strip():
            continue
        yield parse(line, number, form, template)


def _lines(stream: IO[bytes]) -> Iterator[bytes]:
    number = 0
    while line := stream.readline(RECORD_SIZE_BYTES_MAX + 1):
        number += 1
        if len(line) > RECORD_SIZE_BYTES_MAX:
            raise InputError(f"line {number}: longer than {RECORD_SIZE_BYTES_MAX} bytes")
        yield line[:-1] if line.endswith(b"\n") else line


def parse_line(
    line: bytes, number: int, form: InputFormat, template: OutgoingRecord
) -> OutgoingRecord:
    """One record from one line without its line end."""
    key = template.key
    if form.key_separator is not None:
        head, separator, line = line.partition(form.key_separator)
        if not separator:
            shown = form.key_separator.decode(errors="replace")
            raise InputError(f"line {number}: the key separator {shown!r} is missing")
        key = _decode(head, form, number)
    _, _, _, headers, partition, timestamp_ms = template
    return OutgoingRecord(
        number, _decode(line, form, number), key, headers, partition, timestamp_ms
    )


def _decode(data: bytes, form: InputFormat, number: int) -> bytes | None:
    if form.null_marker is not None and data == form.null_marker:
        return None
    return _from_base64(data, number) if form.is_base64 else data


def _from_base64(data: bytes | str, number: int) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InputError(f"line {number}: not base64: {error}") from None


def parse_json_line(
    line: bytes, number: int, _form: InputFormat, template: OutgoingRecord
) -> OutgoingRecord:
    """One record from a JSON object with any of key, value, headers, partition, timestamp.

    Reads the output of `consume --json`, so the two commands copy a topic: `key_base64` and
    `value_base64` (or `_hex`) hold bytes that are not text; topic, offset and timestamp_type are
    ignored.
    """
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"line {number}: not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise InputError(f"line {number}: not a JSON object")
    unknown = sorted(set(fields) - _JSON_FIELDS)
    if unknown:
        raise InputError(
            f"line {number}: unknown field '{unknown[0]}'; the fields are {', '.join(sorted(_JSON_FIELDS))}"
        )
    headers = tuple(_json_headers(fields.get("headers"), number)) or template.headers
    return OutgoingRecord(
        number,
        _json_bytes(fields, "value", number),
        _json_bytes(fields, "key", number) if _JSON_KEY_FIELDS & set(fields) else template.key,
        headers,
        # A partition given on the command line overrides all records, for example to copy to a
        # topic with fewer partitions.
        template.partition
        if template.partition is not None
        else _json_int(fields, "partition", number, INT32_MAX),
        _json_timestamp(fields, number, template),
    )


def _json_bytes(fields: dict[str, Any], name: str, number: int) -> bytes | None:
    if isinstance(encoded := fields.get(f"{name}_base64"), str):
        return _from_base64(encoded, number)
    if isinstance(digits := fields.get(f"{name}_hex"), str):
        try:
            return bytes.fromhex(digits)
        except ValueError as error:
            raise InputError(f"line {number}: {name}_hex: {error}") from None
    return _text_or_json(fields.get(name), number)


def _text_or_json(value: Any, number: int) -> bytes | None:
    """Encodes a string as UTF-8 and any other JSON value as compact JSON; null stays null."""
    if value is None:
        return None
    text = value
    if not isinstance(value, str):
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    try:
        return str(text).encode()
    except UnicodeEncodeError:
        raise InputError(f"line {number}: half of a surrogate pair is not text") from None


def _json_int(fields: dict[str, Any], name: str, number: int, highest: int) -> int | None:
    value = fields.get(name)
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= highest:
        return value
    raise InputError(f"line {number}: {name} must be a number from 0 to {highest}")


def _json_timestamp(fields: dict[str, Any], number: int, template: OutgoingRecord) -> int | None:
    value = fields.get("timestamp")
    if not isinstance(value, str):
        given = _json_int(fields, "timestamp", number, INT64_MAX)
        return template.timestamp_ms if given is None else given
    try:
        return parse_time_ms(value)
    except ValueError:
        raise InputError(
            f"line {number}: timestamp {value!r} is neither milliseconds nor an ISO time"
        ) from None


def _json_headers(value: Any, number: int) -> Headers:
    pairs: Iterable[Any]
    if value is None:
        return []
    if isinstance(value, dict):
        pairs = value.items()
    elif isinstance(value, list) and all(isinstance(p, list) and len(p) == 2 for p in value):
        pairs = value
    else:
        raise InputError(f"line {number}: headers must be an object or a list of [name, value]")
    headers: Headers = []
    for name, content in pairs:
        _text_or_json(str(name), number)
        if isinstance(content, dict) and set(content) == {"base64"}:
            headers.append((str(name), _from_base64(str(content["base64"]), number)))
        else:
            headers.append((str(name), _text_or_json(content, number)))
    return headers
