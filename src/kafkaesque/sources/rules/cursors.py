"""How to resume a stream after a gap: what to request from each network. Pure.

Every request overlaps with what was read before, because networks deliver out of order around a
reconnect. The deduplication window drops the duplicates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime

from kafkaesque.events.social import SourceCursor
from kafkaesque.model.ids import TimestampMs
from kafkaesque.sources.rules.mastodon import id_before

JETSTREAM_LOOKBACK_MS = 36 * 3_600_000
"""Jetstream's default retention; it clamps older cursors silently."""
X_BACKFILL_MINUTES_MAX = 5
X_RECOVERY_MS_MAX = 24 * 3_600_000
X_SEARCH_MS_MAX = 7 * 24 * 3_600_000 - 60_000
"""Recent search reaches seven days back and rejects earlier start times, hence the margin."""
_MINUTE_MS = 60_000


def cursor_key(source: str, stream: str) -> str:
    """The record key of a stream's cursor."""
    return f"{source}/{stream}"


def cursor_position(cursor: SourceCursor | None) -> int | None:
    """The number in a stored cursor; None if there is none or it is invalid."""
    text = cursor.cursor if cursor is not None else ""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 19 else None


def jetstream_cursor(at: int | None, rewind_ms: int) -> int | None:
    """The `time_us` to resume from. Jetstream's documentation advises an overlap of a few seconds."""
    return None if at is None else max(1, at - rewind_ms * 1000)


def jetstream_lost_ms(at: int | None, now_ms: TimestampMs) -> int:
    """How much of a gap is older than Jetstream's retention."""
    return 0 if at is None else max(0, now_ms - at // 1000 - JETSTREAM_LOOKBACK_MS)


def mastodon_min_id(at: int | None, rewind_ms: int) -> int | None:
    """The `min_id` to page forward from."""
    return None if at is None else id_before(at, rewind_ms)


class Rewind:
    """How far before its cursor a stream resumes: `most_ms`, halved each time that a connection ended
    before it passed the cursor. Without halving, a server that cuts connections short, or that sends more
    during the rewind than one connection carries, would be read in an endless loop."""

    def __init__(self, most_ms: int) -> None:
        self._most_ms = most_ms
        self._ms = most_ms
        self._cursor: int | None = None

    def before(self, cursor: int) -> int:
        """The rewind of a connection that starts with this cursor, in milliseconds."""
        self._ms = self._ms // 2 if cursor == self._cursor else self._most_ms
        self._cursor = cursor
        return self._ms


@dataclass(frozen=True, slots=True)
class XPlan:
    """How to fill a gap on X: request `recover` (start and end, ISO 8601) if set, then connect with
    `backfill_minutes`."""

    backfill_minutes: int = 0
    recover: tuple[str, str] | None = None
    lost_ms: int = 0
    """The part of the gap that X no longer has."""


def plan_x(read_ms: TimestampMs | None, now_ms: TimestampMs, rewind_ms: int) -> XPlan:
    """Chooses by the length of the gap (docs.x.com, Recovery and redundancy: decision tree)."""
    if read_ms is None:
        return XPlan()
    gap_ms = max(0, now_ms - read_ms) + rewind_ms
    minutes = math.ceil(gap_ms / _MINUTE_MS)
    if minutes <= X_BACKFILL_MINUTES_MAX:
        return XPlan(backfill_minutes=max(1, minutes))
    start_ms = max(now_ms - gap_ms, now_ms - X_RECOVERY_MS_MAX)
    return XPlan(
        backfill_minutes=X_BACKFILL_MINUTES_MAX,
        recover=(_iso(start_ms), _iso(now_ms - _MINUTE_MS)),
        lost_ms=max(0, gap_ms - X_RECOVERY_MS_MAX),
    )


@dataclass(frozen=True, slots=True)
class XSearch:
    """A recent search for everything since `start_time`."""

    start_time: str
    lost_ms: int = 0


def plan_x_search(
    read_ms: TimestampMs | None, now_ms: TimestampMs, rewind_ms: int
) -> XSearch | None:
    """How to fill a gap without Enterprise access; None on the first connection."""
    if read_ms is None:
        return None
    gap_ms = max(0, now_ms - read_ms) + rewind_ms
    start_ms = now_ms - min(gap_ms, X_SEARCH_MS_MAX)
    return XSearch(_iso(start_ms), max(0, gap_ms - X_SEARCH_MS_MAX))


def _iso(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
