"""Parameters of a message search: start, filter, limit. Parsed from a request, without I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from kafkaesque.console.decoding.detection import KINDS
from kafkaesque.console.rules.filter_language import InvalidFilter, Match, compile_filter, parse

LIMIT: Final = 50
LIMIT_MAX: Final = 1000
SCAN_MAX: Final = 1_000_000
SCAN_LIMIT_MAX: Final = 50_000_000
START_KINDS: Final = ("newest", "oldest", "offset", "last", "time")


class InvalidQuery(Exception):
    """A parameter is invalid; the message says which one and what it may be."""


@dataclass(frozen=True, slots=True)
class StartPosition:
    """Where to start; `number` is an offset, a count or milliseconds since the epoch."""

    kind: str = "newest"
    number: int = 0


@dataclass(frozen=True, slots=True)
class MessageQuery:
    start: StartPosition = StartPosition()
    end_ms: int | None = None
    partitions: frozenset[int] = frozenset()
    """Empty means all."""
    key: bytes | None = None
    filter_text: str = ""
    match: Match | None = None
    decode: str = "auto"
    limit: int = LIMIT
    scan_max: int = SCAN_MAX


def read_query(parameters: Mapping[str, str], limit_max: int = LIMIT_MAX) -> MessageQuery:
    text = parameters.get("filter", "").strip()
    try:
        match = compile_filter(parse(text)) if text else None
    except InvalidFilter as error:
        raise InvalidQuery(f"filter: {error}") from None
    decode = parameters.get("decode") or "auto"
    if decode not in KINDS:
        raise InvalidQuery(f"decode must be one of {', '.join(KINDS)}")
    key = parameters.get("key") or None
    until = parameters.get("until", "").strip()
    return MessageQuery(
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


def read_start(text: str) -> StartPosition:
    """`newest`, `oldest`, `offset:42`, `last:100`, `time:2026-11-16T05:00:00Z`."""
    kind, _, rest = text.strip().partition(":")
    if kind in ("", "newest", "end"):
        return StartPosition("newest")
    if kind in ("oldest", "beginning"):
        return StartPosition("oldest")
    if kind in ("offset", "last"):
        if not rest.isdecimal() or len(rest) > 18:
            raise InvalidQuery(f"from: '{rest}' is not a number")
        return StartPosition(kind, int(rest))
    if kind == "time":
        return StartPosition("time", read_time_ms(rest))
    raise InvalidQuery("from must be newest, oldest, offset:N, last:N or time:ISO")


def read_time_ms(text: str) -> int:
    """ISO 8601 (UTC if it has no time zone), or milliseconds since the epoch."""
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
