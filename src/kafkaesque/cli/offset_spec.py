"""Words for places in a log: `beginning`, `end`, `42`, `-10`, a time. Pure; no client library."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

Kind = Literal["beginning", "end", "offset", "last", "time"]

FORMS = "beginning, end, an offset, -N (the last N), an ISO time, or @EPOCH_MS"

_WORDS: dict[str, Kind] = {
    "beginning": "beginning",
    "earliest": "beginning",
    "start": "beginning",
    "end": "end",
    "latest": "end",
}


@dataclass(frozen=True)
class OffsetSpec:
    """A place in a log. `number` is the offset, the N of "last N", or milliseconds since the epoch."""

    kind: Kind
    number: int = 0


@dataclass(frozen=True)
class Bounds:
    """What a partition holds: earliest <= end. `at_time` is the first offset at or after the time
    that a spec asked for, or None when every record is older."""

    earliest: int
    end: int
    at_time: int | None = None


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


def resolve(spec: OffsetSpec, bounds: Bounds) -> int:
    """The offset that `spec` names in a partition, moved inside its bounds."""
    match spec.kind:
        case "beginning":
            wanted = bounds.earliest
        case "end":
            wanted = bounds.end
        case "offset":
            wanted = spec.number
        case "last":
            wanted = bounds.end - spec.number
        case "time":
            wanted = bounds.end if bounds.at_time is None else bounds.at_time
    return max(bounds.earliest, min(wanted, bounds.end))
