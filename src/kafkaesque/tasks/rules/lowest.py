"""The least of a set that changes all the time. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T", int, tuple[int, str, int, int])

_STALE_MAX = 64


class Lowest(Generic[T]):
    """A set that knows its least. What has left is taken off the heap when it comes to the front, or
    when it makes up most of it."""

    def __init__(self) -> None:
        self._members: set[T] = set()
        self._heap: list[T] = []

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, one: T) -> bool:
        return one in self._members

    def __iter__(self) -> Iterator[T]:
        return iter(self._members)

    def add(self, one: T) -> None:
        if one not in self._members:
            self._members.add(one)
            heapq.heappush(self._heap, one)

    def discard(self, one: T) -> None:
        self._members.discard(one)
        heap = self._heap
        while heap and heap[0] not in self._members:
            heapq.heappop(heap)
        if len(heap) > 2 * len(self._members) + _STALE_MAX:
            self._heap = sorted(self._members)

    @property
    def first(self) -> T | None:
        return self._heap[0] if self._heap else None
