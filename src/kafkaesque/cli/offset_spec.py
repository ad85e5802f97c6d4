"""Parses positions in a log: `beginning`, `end`, `42`, `-10`, or a time. Pure; no client library."""

from __future__ import annotations

import re
from datetime import datetime

from kafkaesque.admin.rules.offset_reset import Kind, OffsetSpec

FORMS = "beginning, end, an offset, -N (the last N), an ISO time, or @EPOCH_MS"

_WORDS: dict[str, Kind] = {
    "beginning": "beginning",
    "earliest": "beginning",
    "start": "beginning",
    "end": "end",
    "latest": "end",
}


def parse_offset_spec(text: str) -> OffsetSpec:
    """Read one of `FORMS`. A time without a zone is local time. Raises ValueError."""
    word = text.strip().lower()
    if word in _WORDS:
        return OffsetSpec(_WORDS[word])
    if word.isdecimal():
        return OffsetSpec("offset", int(word))
    if re.fullmatch(r"-\d+", word):
        return OffsetSpec("last", int(word[1:]))
    if re.fullmatch(r"@-?\d+", word):
        return OffsetSpec("time", int(word[1:]))
    return OffsetSpec("time", parse_time_ms(text))


def parse_time_ms(text: str) -> int:
    """ISO 8601, or `@` and milliseconds, to milliseconds since the epoch. Raises ValueError."""
    stripped = text.strip()
    if re.fullmatch(r"@-?\d+", stripped):
        return int(stripped[1:])
    try:
        moment = datetime.fromisoformat(stripped)
    except ValueError:
        raise ValueError(f"'{text}' is not {FORMS}") from None
    return round(moment.timestamp() * 1000)
