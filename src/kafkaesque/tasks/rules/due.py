"""What waits for its time in memory: a heap by due time. Pure."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class DueHeap(Generic[T]):
    """Items by the time at which they are due; equal times in the order in which they came."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, T]] = []
        self._count = itertools.count()

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, due_ms: int, item: T) -> None:
        heapq.heappush(self._heap, (due_ms, next(self._count), item))

    @property
    def next_due_ms(self) -> int | None:
        return self._heap[0][0] if self._heap else None

    def take(self, now_ms: int) -> list[T]:
        """All that are due."""
        taken = []
        while self._heap and self._heap[0][0] <= now_ms:
            taken.append(heapq.heappop(self._heap)[2])
        return taken

    def drop(self, unwanted: Callable[[T], bool]) -> list[T]:
        dropped = [item for _, _, item in self._heap if unwanted(item)]
        self._heap = [entry for entry in self._heap if not unwanted(entry[2])]
        heapq.heapify(self._heap)
        return dropped
