"""How a stream is taken up again after a gap: what to ask each network for. Pure.

Every answer overlaps with what was read before: networks deliver out of order at the seams, and the
window drops what comes twice.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime

from kafkaesque.events.social import SourceCursor
from kafkaesque.model.ids import TimestampMs
from kafkaesque.sources.rules.mastodon import id_before

JETSTREAM_LOOKBACK_MS = 36 * 3_600_000
"""Jetstream keeps this much by default, and clamps older cursors silently."""
X_BACKFILL_MINUTES_MAX = 5
X_RECOVERY_MS_MAX = 24 * 3_600_000
X_SEARCH_MS_MAX = 7 * 24 * 3_600_000 - 60_000
"""Recent search reaches seven days back and refuses what is a moment older."""
_MINUTE_MS = 60_000


def key_of(source: str, stream: str) -> str:
    """Record key in the topic of cursors."""
    return f"{source}/{stream}"


def position(cursor: SourceCursor | None) -> int | None:
    """The number inside a kept cursor; None where it is unreadable, which is as good as none."""
    text = cursor.cursor if cursor is not None else ""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 19 else None


def jetstream_cursor(at: int | None, rewind_ms: int) -> int | None:
    """`time_us` to resume from. The documentation advises a buffer of a few seconds."""
    return None if at is None else max(1, at - rewind_ms * 1000)


def jetstream_lost_ms(at: int | None, now_ms: TimestampMs) -> int:
    """How much of a gap lies beyond what Jetstream still has."""
    return 0 if at is None else max(0, now_ms - at // 1000 - JETSTREAM_LOOKBACK_MS)


def mastodon_min_id(at: int | None, rewind_ms: int) -> int | None:
    """`min_id` to page forward from."""
    return None if at is None else id_before(at, rewind_ms)


class Rewind:
    """How far behind its cursor a stream resumes: `most_ms`, but half of it each time that a connection
    ended before it came past the cursor. Else a server that cuts connections short, or one fast enough
    to fill the rewind with more than a connection carries, would be read in a circle for ever."""

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
    """First `recover` (start and end, ISO 8601), if there is one; then live with `backfill_minutes`."""

    backfill_minutes: int = 0
    recover: tuple[str, str] | None = None
    lost_ms: int = 0
    """The part of the gap that X has no longer."""


def plan_x(read_ms: TimestampMs | None, now_ms: TimestampMs, rewind_ms: int) -> XPlan:
    """By the length of the gap (docs.x.com, Recovery and redundancy: its decision tree)."""
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
    """Ask recent search for everything since `start_time`."""

    start_time: str
    lost_ms: int = 0


def plan_x_search(
    read_ms: TimestampMs | None, now_ms: TimestampMs, rewind_ms: int
) -> XSearch | None:
    """How a gap is filled without Enterprise access; None where there was none."""
    if read_ms is None:
        return None
    gap_ms = max(0, now_ms - read_ms) + rewind_ms
    start_ms = now_ms - min(gap_ms, X_SEARCH_MS_MAX)
    return XSearch(_iso(start_ms), max(0, gap_ms - X_SEARCH_MS_MAX))


def _iso(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
