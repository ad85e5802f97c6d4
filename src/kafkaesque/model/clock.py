"""Time is an argument: whatever has rules about time receives a Clock and never reads one."""

from __future__ import annotations

from typing import Protocol

from kafkaesque.model.ids import TimestampMs


class Clock(Protocol):
    """Two times that must not be confused."""

    def wall_ms(self) -> TimestampMs:
        """Milliseconds since the Unix epoch. May jump either way: for timestamps and retention only."""
        ...

    def monotonic(self) -> float:
        """Seconds from an arbitrary start. Never goes back: for every timeout and every session."""
        ...
