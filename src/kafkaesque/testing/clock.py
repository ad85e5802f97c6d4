"""A clock that a test moves by hand, for everything that depends on age: retention, expiry, sessions."""

from __future__ import annotations

import threading
import time

from kafkaesque.model.ids import TimestampMs


class ManualClock:
    """A `model.clock.Clock` that moves only by `advance`. Thread-safe.

    It starts at the real time by default, because clients put real timestamps on their records and a
    broker refuses records from its future (message.timestamp.after.max.ms).
    """

    def __init__(self, start_ms: int | None = None) -> None:
        self._lock = threading.Lock()
        self._wall_ms = time.time_ns() // 1_000_000 if start_ms is None else start_ms
        self._monotonic_ms = 0

    def wall_ms(self) -> TimestampMs:
        return TimestampMs(self._wall_ms)

    def monotonic(self) -> float:
        return self._monotonic_ms / 1000

    def advance(self, seconds: float) -> None:
        """Move both times forward. Periodic work runs only with `Broker.run_maintenance`."""
        if seconds < 0:
            raise ValueError(f"a clock only moves forward, not by {seconds} s")
        with self._lock:
            self._wall_ms += round(seconds * 1000)
            self._monotonic_ms += round(seconds * 1000)
