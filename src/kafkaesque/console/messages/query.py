"""What to read: where from, how many, which; from the parameters of a request. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from kafkaesque.console.decoding.detection import KINDS
from kafkaesque.console.rules.expression import InvalidFilter, parse
from kafkaesque.console.rules.matching import Match, compile_filter

LIMIT: Final = 50
LIMIT_MAX: Final = 1000
SCAN_MAX: Final = 1_000_000
SCAN_LIMIT_MAX: Final = 50_000_000
START_KINDS: Final = ("newest", "oldest", "offset", "last", "time")

Range = tuple[int, int]
"""Offsets from the first to before the second."""


class InvalidQuery(Exception):
    """A parameter is wrong; the message says which and what it may be."""


@dataclass(frozen=True, slots=True)
class Start:
    """Where to begin; `number` is an offset, a count or milliseconds since the epoch."""

    kind: str = "newest"
    number: int = 0


@dataclass(frozen=True, slots=True)
class Query:
    start: Start = Start()
    end_ms: int | None = None
    partitions: frozenset[int] = frozenset()
    """Empty: all."""
    key: bytes | None = None
    filter_text: str = ""
    match: Match | None = None
    decode: str = "auto"
    limit: int = LIMIT
    scan_max: int = SCAN_MAX


def read_query(parameters: Mapping[str, str], limit_max: int = LIMIT_MAX) -> Query:
    text = parameters.get("filter", "").strip()
    try:
        match = compile_filter(parse(text)) if text else None
    except InvalidFilter as error:
        raise InvalidQuery(f"filter: {error}") from None
    decode = parameters.get("decode") or "auto"
    if decode not in KINDS:
        raise InvalidQuery(f"decode is one of {', '.join(KINDS)}")
    key = parameters.get("key") or None
    until = parameters.get("until", "").strip()
    return Query(
        start=read_start(parameters.get("from", "")),
        end_ms=read_time_ms(until) if until else None,
        partitions=_partitions(parameters.get("partition", "")),
        key=None if key is None else key.encode(),
        filter_text=text,
        match=match,
        decode=decode,
        limit=_number(parameters, "limit", LIMIT, limit_max),
        scan_max=_number(parameters, "scan", SCAN_MAX, SCAN_LIMIT_MAX),
    )


def read_start(text: str) -> Start:
    """`newest`, `oldest`, `offset:42`, `last:100`, `time:2026-11-16T05:00:00Z`."""
    kind, _, rest = text.strip().partition(":")
    if kind in ("", "newest", "end"):
        return Start("newest")
    if kind in ("oldest", "beginning"):
        return Start("oldest")
    if kind in ("offset", "last"):
        if not rest.isdecimal() or len(rest) > 18:
            raise InvalidQuery(f"from: '{rest}' is not a number")
        return Start(kind, int(rest))
    if kind == "time":
        return Start("time", read_time_ms(rest))
    raise InvalidQuery("from is newest, oldest, offset:N, last:N or time:ISO")


def read_time_ms(text: str) -> int:
    """ISO 8601 (UTC if it names no zone), or milliseconds since the epoch."""
    if text.isdecimal() and len(text) < 16:
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidQuery(f"'{text}' is not an ISO time") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def _partitions(text: str) -> frozenset[int]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not all(part.isdecimal() and len(part) < 7 for part in parts):
        raise InvalidQuery(f"partition: '{text}' is not a list of numbers")
    return frozenset(map(int, parts))


def _number(parameters: Mapping[str, str], name: str, default: int, most: int) -> int:
    text = parameters.get(name, "")
    if not text:
        return default
    if not text.isdecimal() or len(text) > 12:
        raise InvalidQuery(f"{name}: '{text}' is not a number")
    return max(1, min(int(text), most))


def windows_back(bounds: Mapping[int, Range], size: int) -> list[dict[int, Range]]:
    """The newest `size` records of each partition, then those before, ...: each window is larger,
    so that a rare match far back costs few turns."""
    windows = []
    ends = {index: end for index, (_, end) in bounds.items()}
    while any(ends[index] > start for index, (start, _) in bounds.items()):
        window = {
            index: (max(start, ends[index] - size), ends[index])
            for index, (start, _) in bounds.items()
            if ends[index] > start
        }
        windows.append(window)
        for index, (low, _) in window.items():
            ends[index] = low
        size *= 4
    return windows
