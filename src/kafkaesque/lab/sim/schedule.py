"""Virtual time: one heap of events. Knows nothing of what the events do."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Final

from kafkaesque.model.errors import check

Action = Callable[[], None]

MILLISECOND_US: Final = 1_000
SECOND_US: Final = 1_000_000
EVENTS_WAITING_MAX: Final = 50_000
"""More than this means that something multiplies: a livelock, not a load."""


class Schedule:
    """Events in the order of their time; those of one moment in the order they were planned."""

    __slots__ = ("_heap", "event_count", "now_us", "planned_count")

    def __init__(self) -> None:
        self.now_us = 0
        self.event_count = 0
        self.planned_count = 0
        self._heap: list[tuple[int, int, Action]] = []

    def __len__(self) -> int:
        return len(self._heap)

    def after(self, delay_us: int, action: Action) -> None:
        check(delay_us >= 0, "no event lies in the past")
        check(len(self._heap) < EVENTS_WAITING_MAX, "events multiply without bound")
        self.planned_count += 1
        heapq.heappush(self._heap, (self.now_us + delay_us, self.planned_count, action))

    def run_until(self, end_us: int) -> None:
        """Perform everything up to `end_us`; that is then the time."""
        heap = self._heap
        while heap and heap[0][0] <= end_us:
            self.now_us, _, action = heapq.heappop(heap)
            self.event_count += 1
            action()
        self.now_us = end_us
