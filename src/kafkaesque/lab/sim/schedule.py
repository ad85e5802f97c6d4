"""The sources of determinism: virtual time, seeded randomness, node clocks, and the trace of a run.

The same seed must give the same trace, in any process: nothing in the simulation reads the real time,
and all randomness comes from `random_stream`.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable
from random import Random
from typing import Final

from kafkaesque.model.errors import check
from kafkaesque.model.ids import TimestampMs

Action = Callable[[], None]

MILLISECOND_US: Final = 1_000
SECOND_US: Final = 1_000_000
EVENTS_WAITING_MAX: Final = 50_000
"""More events than this mean a livelock, not load."""
_EPOCH_MS: Final = 1_700_000_000_000
"""Wall time at the start, so that records have plausible timestamps."""
_PPM: Final = 1_000_000


def random_stream(seed: int, part: str) -> Random:
    """A random stream of its own for each part, so that one more draw in one part does not change the
    others. Seeded by text, which, unlike its hash, is the same in every process."""
    return Random(f"{seed}/{part}")


class EventSchedule:
    """Runs events in order of their time; events of the same time in the order of scheduling."""

    __slots__ = ("_heap", "event_count", "now_us", "planned_count")

    def __init__(self) -> None:
        self.now_us = 0
        self.event_count = 0
        self.planned_count = 0
        self._heap: list[tuple[int, int, Action]] = []

    def __len__(self) -> int:
        return len(self._heap)

    def after(self, delay_us: int, action: Action) -> None:
        check(delay_us >= 0, "no event is scheduled in the past")
        check(len(self._heap) < EVENTS_WAITING_MAX, "events multiply without bound")
        self.planned_count += 1
        heapq.heappush(self._heap, (self.now_us + delay_us, self.planned_count, action))

    def run_until(self, end_us: int) -> None:
        """Run all events up to `end_us`, and set the time to it."""
        heap = self._heap
        while heap and heap[0][0] <= end_us:
            self.now_us, _, action = heapq.heappop(heap)
            self.event_count += 1
            action()
        self.now_us = end_us


class NodeClock:
    """The clock of one node (a model.clock.Clock): runs `rate_ppm` faster than true time; its wall clock
    may jump."""

    __slots__ = ("_schedule", "rate_ppm", "wall_offset_ms")

    def __init__(self, schedule: EventSchedule, rate_ppm: int) -> None:
        self._schedule = schedule
        self.rate_ppm = rate_ppm
        self.wall_offset_ms = 0

    def monotonic(self) -> float:
        return self.at(self._schedule.now_us)

    def at(self, true_us: int) -> float:
        """The value of `monotonic` at that true time."""
        return true_us * (_PPM + self.rate_ppm) // _PPM / SECOND_US

    def wall_ms(self) -> TimestampMs:
        return TimestampMs(_EPOCH_MS + self.wall_offset_ms + self._own_us() // 1000)

    def true_us(self, own_us: int) -> int:
        """The true duration of `own_us` of this clock."""
        return own_us * _PPM // (_PPM + self.rate_ppm)

    def _own_us(self) -> int:
        return self._schedule.now_us * (_PPM + self.rate_ppm) // _PPM


class Trace:
    """Hashes every event in order, to compare runs; `show` gets the events as lines."""

    __slots__ = ("_hash", "_schedule", "_show")

    def __init__(self, schedule: EventSchedule, show: Callable[[str], None] | None = None) -> None:
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
