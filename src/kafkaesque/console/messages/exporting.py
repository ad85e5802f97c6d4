"""Found records as NDJSON or CSV, piece by piece: an export of any length takes little memory."""

from __future__ import annotations

import csv
import io
from collections.abc import AsyncIterator
from typing import Any, Final

import msgspec

from kafkaesque.console.messages.record import ReadRecord
from kafkaesque.console.messages.scanning import Found

FORMATS: Final = {"ndjson": "application/x-ndjson", "csv": "text/csv; charset=utf-8"}
COLUMNS: Final = ("partition", "offset", "timestamp_ms", "key", "value", "headers")
_FORMULA_STARTS: Final = ("=", "+", "-", "@", "\t", "\r")


async def export(turns: AsyncIterator[Found], form: str) -> AsyncIterator[bytes]:
    if form == "csv":
        yield _csv([COLUMNS])
    async for found in turns:
        if not found.records:
            continue
        if form == "csv":
            yield _csv([_row(record) for record in found.records])
        else:
            lines = [
                msgspec.json.encode(record.document(is_whole=True)) for record in found.records
            ]
            yield b"\n".join([*lines, b""])


def _csv(rows: list[Any]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue().encode()


def _row(record: ReadRecord) -> tuple[Any, ...]:
    headers = msgspec.json.encode(record.headers).decode() if record.header_list else ""
    return (record.partition, record.offset, record.timestamp_ms, _cell(record.key),
            _cell(record.value), headers)  # fmt: skip


def _cell(value: Any) -> str:
    """Text that a spreadsheet would run as a formula gets a quote before it (OWASP, CSV injection)."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return f"'{text}" if text.startswith(_FORMULA_STARTS) and isinstance(value, str) else text
