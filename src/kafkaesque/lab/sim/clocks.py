"""The clock of one node: its own rate, and a wall clock that jumps."""

from __future__ import annotations

from typing import Final

from kafkaesque.lab.sim.schedule import SECOND_US, Schedule
from kafkaesque.model.ids import TimestampMs

_EPOCH_MS: Final = 1_700_000_000_000
"""Some day: records want plausible timestamps."""
_PPM: Final = 1_000_000


class NodeClock:
    """Fulfils model.clock.Clock. `rate_ppm` is how much faster than true time it runs."""

    __slots__ = ("_schedule", "rate_ppm", "wall_offset_ms")

    def __init__(self, schedule: Schedule, rate_ppm: int) -> None:
        self._schedule = schedule
        self.rate_ppm = rate_ppm
        self.wall_offset_ms = 0

    def monotonic(self) -> float:
        return self.at(self._schedule.now_us)

    def at(self, true_us: int) -> float:
        """What `monotonic` says at that moment."""
        return true_us * (_PPM + self.rate_ppm) // _PPM / SECOND_US

    def wall_ms(self) -> TimestampMs:
        return TimestampMs(_EPOCH_MS + self.wall_offset_ms + self._own_us() // 1000)

    def true_us(self, own_us: int) -> int:
        """How long `own_us` of this clock take in true time."""
        return own_us * _PPM // (_PPM + self.rate_ppm)

    def _own_us(self) -> int:
        return self._schedule.now_us * (_PPM + self.rate_ppm) // _PPM
