"""The clock of the machine: the only place of the broker that reads it."""

from __future__ import annotations

from time import monotonic, time_ns

from kafkaesque.model.ids import TimestampMs


class SystemClock:
    def wall_ms(self) -> TimestampMs:
        # Not TimestampMs(...): a NewType is a call, and every batch comes this way.
        return time_ns() // 1_000_000  # type: ignore[return-value]

    def monotonic(self) -> float:
        return monotonic()
