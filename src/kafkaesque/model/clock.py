"""The clock interface.

The broker's timeouts, sessions, leases and retention use a Clock, so that tests and the simulation control
time. Rules receive the time and never read it. Code at sockets, measurements and the services read system time.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from kafkaesque.model.ids import TimestampMs


class Moment(NamedTuple):
    """A point in time on both clocks: `monotonic` for timeouts, `wall_ms` for records, retention and
    expiry."""

    monotonic: float
    wall_ms: TimestampMs


class Clock(Protocol):
    """Wall-clock and monotonic time, which must not be mixed."""

    def wall_ms(self) -> TimestampMs:
        """Milliseconds since the Unix epoch. May jump: use it for timestamps and retention only."""
        ...

    def monotonic(self) -> float:
        """Seconds since an arbitrary start. Never decreases: use it for timeouts and sessions."""
        ...
