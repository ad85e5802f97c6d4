"""The system clock: what a process passes wherever rules take a `model.clock.Clock`."""

from __future__ import annotations

from time import monotonic, time_ns

from kafkaesque.model.ids import TimestampMs


class SystemClock:
    """See `model.clock.Clock`."""

    def wall_ms(self) -> TimestampMs:
        # Not TimestampMs(...): a NewType is a call, and the broker does this for every batch.
        return time_ns() // 1_000_000  # type: ignore[return-value]

    def monotonic(self) -> float:
        return monotonic()
