"""What happened, as a hash that tells two runs apart, and as lines for whoever replays one."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from kafkaesque.lab.sim.schedule import Schedule


class Trace:
    """Every event is noted in its order; `show` gets the same as text."""

    __slots__ = ("_hash", "_schedule", "_show")

    def __init__(self, schedule: Schedule, show: Callable[[str], None] | None = None) -> None:
        self._schedule = schedule
        self._hash = hashlib.blake2b(digest_size=16)
        self._show = show

    def note(self, text: str) -> None:
        line = f"{self._schedule.now_us / 1000:10.3f} {text}"
        self._hash.update(line.encode())
        if self._show is not None:
            self._show(line)

    def digest(self) -> str:
        return self._hash.hexdigest()
