"""Which rows of a table of windows a backfill or replay has computed whole, and may therefore replace.

A window is whole when nothing more can come into it: its end, and whatever its job waits for after it,
lies behind the watermark. Windows at the edges of the range are not whole, windows that the live query
has not told yet it will tell itself: neither may be swapped, or rows would be lost or come twice.
Rules only; what is known of the log and of the live query is given.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from kafkaesque.pipeline.kafka.cluster import Partition
from kafkaesque.pipeline.operate.context import Knobs
from kafkaesque.pipeline.source.offsets import from_spark

READ_BEFORE_MS = 5 * 60_000
"""How far before the range records may lie that belong into it: the clock skew that is believed."""
READ_AFTER_MS = 60_000
"""Records behind range and lateness that move the watermark of a replay past the range's end."""


@dataclass(frozen=True, slots=True)
class Windows:
    """The columns of a table whose rows are about stretches of time."""

    start: str
    end: str
    newest: str
    """A column whose maximum is not after the newest event."""
    late_s: Callable[[Knobs], int]
    tail_s: Callable[[Knobs], int] = lambda _knobs: 0
    """How long after `end` a row still waits for events: a minute's own length, a session's gap."""
    lead_s: Callable[[Knobs], int] = lambda _knobs: 0
    """How long before `start` an event would have made the row another."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """Rows with `start >= start_ms` and `end <= end_ms` are whole. None: no bound on that side."""

    windows: Windows
    start_ms: int | None
    end_ms: int | None

    @property
    def is_empty(self) -> bool:
        bounds = self.start_ms, self.end_ms
        return bounds[0] is not None and bounds[1] is not None and bounds[0] >= bounds[1]

    def predicate(self) -> str | None:
        """For Delta; None where every row is whole."""
        parts = []
        if self.start_ms is not None:
            parts.append(f"{self.windows.start} >= {_timestamp(self.start_ms)}")
        if self.end_ms is not None:
            parts.append(f"{self.windows.end} <= {_timestamp(self.end_ms)}")
        return " AND ".join(parts) or None


def cover(
    windows: Windows,
    knobs: Knobs,
    *,
    wanted: tuple[int | None, int | None],
    log_begins_ms: int | None,
    frontiers_ms: tuple[int | None, ...],
) -> Coverage:
    """What may be swapped of `wanted`.

    `log_begins_ms` is the time of the oldest record where older ones are gone; `frontiers_ms` are the
    watermarks that rows must lie behind: the run's own, and the live query's.
    """
    start_ms, end_ms = wanted
    if log_begins_ms is not None:
        floor_ms = log_begins_ms + windows.lead_s(knobs) * 1000
        start_ms = floor_ms if start_ms is None else max(start_ms, floor_ms)
    bounds = [bound for bound in (end_ms, *frontiers_ms) if bound is not None]
    tail_ms = windows.tail_s(knobs) * 1000
    return Coverage(windows, start_ms, min(bounds) - tail_ms if bounds else None)


def read_range_ms(
    windows: Windows, knobs: Knobs, start_ms: int | None, end_ms: int | None
) -> tuple[int | None, int | None]:
    """The times of the records that must be read to make the rows of a range whole."""
    before_ms = READ_BEFORE_MS + windows.lead_s(knobs) * 1000
    after_ms = READ_AFTER_MS + (windows.late_s(knobs) + windows.tail_s(knobs)) * 1000
    return (
        None if start_ms is None else max(0, start_ms - before_ms),
        None if end_ms is None else end_ms + after_ms,
    )


def live_frontier_ms(checkpoint: Path) -> int | None:
    """The watermark up to which a query has told its windows; None for one that never ran.

    In append mode a batch tells the windows that its own watermark has passed, and the watermark of a
    batch stands in the second line of its entry in the offset log (OffsetSeqMetadata).
    """
    lines = _last_done(checkpoint)
    if lines is None:
        return 0 if (checkpoint / "offsets").exists() else None
    return int(json.loads(lines[1]).get("batchWatermarkMs", 0))


def reached_offsets(checkpoint: Path) -> dict[Partition, int]:
    """Up to where a query of one source has finished its batches; empty for one that has none."""
    lines = _last_done(checkpoint)
    return {} if lines is None else from_spark(json.loads(lines[2]))


def _last_done(checkpoint: Path) -> list[str] | None:
    """The entry of the last finished batch in the offset log: version, metadata, offsets."""
    done = [int(path.name) for path in checkpoint.glob("commits/*") if path.name.isdigit()]
    if not done:
        return None
    return (checkpoint / "offsets" / str(max(done))).read_text().splitlines()


def _timestamp(time_ms: int) -> str:
    """As a literal of the column's own type: delta-rs compares a plain TIMESTAMP with no column."""
    moment = datetime.fromtimestamp(time_ms / 1000, tz=UTC).isoformat(timespec="milliseconds")
    return f"arrow_cast('{moment}', 'Timestamp(Microsecond, Some(\"UTC\"))')"
