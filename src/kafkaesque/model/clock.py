"""The clock interface. Code that depends on time receives a Clock and never reads system time."""

from __future__ import annotations

from typing import Protocol

from kafkaesque.model.ids import TimestampMs


class Clock(Protocol):
    """Wall-clock and monotonic time, which must not be mixed."""

    def wall_ms(self) -> TimestampMs:
        """Milliseconds since the Unix epoch. May jump: use it for timestamps and retention only."""
        ...

    def monotonic(self) -> float:
        """Seconds since an arbitrary start. Never decreases: use it for timeouts and sessions."""
        ...
