"""Data structures of the scheduler: a queue by key, a heap by due time, a set with its minimum."""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from kafkaesque.model.errors import check

T = TypeVar("T")
Ordered = TypeVar("Ordered", int, tuple[int, str, int, int])

_STALE_MAX = 64


class KeyedQueue(Generic[T]):
    """A FIFO queue in which items of one key run one at a time and items of different keys concurrently."""

    def __init__(self, key_of: Callable[[T], bytes | None]) -> None:
        self._key_of = key_of
        """None: the item has no key, blocks no other item and is blocked by none."""
        self._ready: deque[T] = deque()
        self._blocked: dict[bytes, deque[T]] = {}
        """The items that wait for each busy key. A key is busy while an item of it is ready or taken."""
        self._blocked_count = 0

    def __len__(self) -> int:
        """Items that have not been taken."""
        return len(self._ready) + self._blocked_count

    def is_busy(self, key: bytes) -> bool:
        """Whether an item added now would be blocked."""
        return key in self._blocked

    def blocked_by(self, key: bytes) -> int:
        """The number of items that wait for `key`."""
        return len(self._blocked.get(key, ()))

    def add(self, item: T) -> bool:
        """Returns True if the item is ready, False if it is blocked by its key."""
        key = self._key_of(item)
        blocked = None if key is None else self._blocked.get(key)
        if blocked is not None:
            blocked.append(item)
            self._blocked_count += 1
            return False
        if key is not None:
            self._blocked[key] = deque()
        self._ready.append(item)
        return True

    def take(self) -> T | None:
        """Returns the next item to run. It occupies its key until `release`."""
        return self._ready.popleft() if self._ready else None

    def release(self, item: T) -> T | None:
        """Frees the key of a taken item. Returns the item that became ready, if any."""
        key = self._key_of(item)
        if key is None:
            return None
        blocked = self._blocked.get(key)
        check(blocked is not None, "only a busy key is released")
        if not blocked:
            del self._blocked[key]
            return None
        self._blocked_count -= 1
        following = blocked.popleft()
        self._ready.append(following)
        return following

    def remove_if(self, unwanted: Callable[[T], bool]) -> tuple[list[T], list[T]]:
        """Removes unwanted items that have not been taken; taken items keep their keys. Returns the
        removed items and those that became ready as a result."""
        removed: list[T] = []
        following: list[T] = []
        for blocked in self._blocked.values():
            kept = [item for item in blocked if not unwanted(item)]
            if len(kept) < len(blocked):
                removed += [item for item in blocked if unwanted(item)]
                self._blocked_count -= len(blocked) - len(kept)
                blocked.clear()
                blocked.extend(kept)
        ready, self._ready = self._ready, deque()
        for item in ready:
            if unwanted(item):
                removed.append(item)
                next_of_key = self.release(item)
                following += [] if next_of_key is None else [next_of_key]
            else:
                self._ready.append(item)
        return removed, following


class DueHeap(Generic[T]):
    """Items ordered by due time; items with equal times keep their order of arrival."""

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

    def pop_due(self, now_ms: int) -> list[T]:
        """Removes and returns all items that are due."""
        due = []
        while self._heap and self._heap[0][0] <= now_ms:
            due.append(heapq.heappop(self._heap)[2])
        return due

    def remove_if(self, unwanted: Callable[[T], bool]) -> list[T]:
        removed = [item for _, _, item in self._heap if unwanted(item)]
        self._heap = [entry for entry in self._heap if not unwanted(entry[2])]
        heapq.heapify(self._heap)
        return removed


class MinSet(Generic[Ordered]):
    """A set that gives its minimum in constant time.

    A discarded member leaves the heap when it reaches the front, or when stale entries outnumber live ones.
    """

    def __init__(self) -> None:
        self._members: set[Ordered] = set()
        self._heap: list[Ordered] = []

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, member: Ordered) -> bool:
        return member in self._members

    def __iter__(self) -> Iterator[Ordered]:
        return iter(self._members)

    def add(self, member: Ordered) -> None:
        if member not in self._members:
            self._members.add(member)
            heapq.heappush(self._heap, member)

    def discard(self, member: Ordered) -> None:
        self._members.discard(member)
        heap = self._heap
        while heap and heap[0] not in self._members:
            heapq.heappop(heap)
        if len(heap) > 2 * len(self._members) + _STALE_MAX:
            self._heap = sorted(self._members)

    @property
    def minimum(self) -> Ordered | None:
        return self._heap[0] if self._heap else None
