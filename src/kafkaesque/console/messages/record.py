"""One record of the message browser: lazily decoded, as JSON for pages, as NDJSON or CSV for exports."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from kafkaesque.console.decoding.detection import Decoded, Decoder, printable
from kafkaesque.console.rules.view import Document

SHOWN_CHARACTERS_MAX: Final = 64_000
"""Characters of a key or value in a response; an export contains all of them."""

EXPORT_FORMATS: Final = {"ndjson": "application/x-ndjson", "csv": "text/csv; charset=utf-8"}
_COLUMNS: Final = ("partition", "offset", "timestamp_ms", "key", "value", "headers")
_FORMULA_STARTS: Final = ("=", "+", "-", "@", "\t", "\r")

Headers = Sequence[tuple[str, bytes | None]]


class ReadRecord:
    """A record read by librdkafka; implements `filter_language.Searchable`."""

    __slots__ = ("_decoder", "_headers", "_key", "_value", "key_bytes", "offset", "partition",
                 "timestamp_ms", "value_bytes")  # fmt: skip

    def __init__(
        self,
        place: tuple[int, int],
        timestamp_ms: int,
        data: tuple[bytes | None, bytes | None],
        headers: Headers | None,
        decoder: Decoder,
    ) -> None:
        self.partition, self.offset = place
        self.timestamp_ms = timestamp_ms
        self.key_bytes, self.value_bytes = data
        self._headers = headers
        self._decoder = decoder
        self._key: Decoded | None = None
        self._value: Decoded | None = None

    @property
    def decoded_key(self) -> Decoded:
        if self._key is None:
            self._key = self._decoder.decode(self.key_bytes, is_key=True)
        return self._key

    @property
    def decoded_value(self) -> Decoded:
        if self._value is None:
            self._value = self._decoder.decode(self.value_bytes)
        return self._value

    @property
    def key(self) -> Any:
        return self.decoded_key.value

    @property
    def value(self) -> Any:
        return self.decoded_value.value

    @property
    def headers(self) -> dict[str, Any]:
        return {name: header_text(value) for name, value in self.header_list}

    @property
    def header_list(self) -> Headers:
        return self._headers or ()

    def document(self, is_whole: bool = False) -> Document:
        """The record as JSON data. `is_whole` keeps long values complete, for an export."""
        return {
            "partition": self.partition,
            "offset": self.offset,
            "timestamp_ms": self.timestamp_ms,
            "key": _shown(self.decoded_key, is_whole),
            "value": _shown(self.decoded_value, is_whole),
            "headers": [[name, header_text(value)] for name, value in self.header_list],
            "size_bytes": len(self.key_bytes or b"") + len(self.value_bytes or b""),
        }


def header_text(value: bytes | None) -> str | None:
    if value is None:
        return None
    text = printable(value)
    return value.hex() if text is None else text


def _shown(decoded: Decoded, is_whole: bool) -> Document:
    shown: Document = {"kind": decoded.kind, "data": decoded.value}
    if decoded.schema_id is not None:
        shown["schema_id"] = decoded.schema_id
    if (
        not is_whole
        and isinstance(decoded.value, str)
        and len(decoded.value) > SHOWN_CHARACTERS_MAX
    ):
        shown["data"] = decoded.value[:SHOWN_CHARACTERS_MAX]
        shown["cut"] = len(decoded.value) - SHOWN_CHARACTERS_MAX
    return shown


def encode_records(records: Sequence[ReadRecord], form: str) -> bytes:
    """The records as lines of an export; `form` is a key of `EXPORT_FORMATS`."""
    if form == "csv":
        return _csv([_row(record) for record in records])
    lines = [msgspec.json.encode(record.document(is_whole=True)) for record in records]
    return b"\n".join([*lines, b""])


def export_header(form: str) -> bytes:
    """The first line of an export: column names for CSV, nothing for NDJSON."""
    return _csv([_COLUMNS]) if form == "csv" else b""


def _csv(rows: list[Any]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue().encode()


def _row(record: ReadRecord) -> tuple[Any, ...]:
    headers = msgspec.json.encode(record.headers).decode() if record.header_list else ""
    return (record.partition, record.offset, record.timestamp_ms, _cell(record.key),
            _cell(record.value), headers)  # fmt: skip


def _cell(value: Any) -> str:
    """Prefix text that a spreadsheet would run as a formula with a quote (OWASP, CSV injection)."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return f"'{text}" if text.startswith(_FORMULA_STARTS) and isinstance(value, str) else text
