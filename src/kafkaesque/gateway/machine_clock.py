"""The clock of the machine: the only place of the gateway that reads it for its rules."""

from __future__ import annotations

import time

from kafkaesque.model.ids import TimestampMs


class MachineClock:
    """See `model.clock.Clock`."""

    def wall_ms(self) -> TimestampMs:
        return TimestampMs(time.time_ns() // 1_000_000)

    def monotonic(self) -> float:
        return time.monotonic()
