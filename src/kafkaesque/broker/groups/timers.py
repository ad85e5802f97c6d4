"""Deadlines of many keys, cheap to postpone.

A heartbeat only writes a number into a dict: the heap keeps the earlier deadline and requeues the key
when that one is due. Cancelled keys leave the heap the same way.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from typing import Generic, TypeVar

KeyT = TypeVar("KeyT", bound=Hashable)

_COMPACTION_FLOOR = 64


class Timers(Generic[KeyT]):
    """At most one deadline per key, in monotonic seconds.

    For every key with a deadline: queued <= deadline, and (queued, key) is in the heap.
    """

    __slots__ = ("_deadlines", "_heap", "_queued", "_sequence")

    def __init__(self) -> None:
        self._deadlines: dict[KeyT, float] = {}
        self._queued: dict[KeyT, float] = {}
        self._heap: list[tuple[float, int, KeyT]] = []
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._deadlines)

    def __contains__(self, key: KeyT) -> bool:
        return key in self._deadlines

    def start(self, key: KeyT, deadline: float) -> None:
        """Sets or changes the deadline of `key`."""
        self._deadlines[key] = deadline
        queued = self._queued.get(key)
        if queued is None or deadline < queued:
            self._push(key, deadline)

    def cancel(self, key: KeyT) -> None:
        """Removes `key` if it is known."""
        self._deadlines.pop(key, None)
        if len(self._heap) > 2 * len(self._deadlines) + _COMPACTION_FLOOR:
            self._compact()

    def next_deadline(self) -> float | None:
        """The earliest deadline, exactly."""
        self._settle()
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now: float) -> KeyT | None:
        """Removes and returns a key that is due, earliest first."""
        self._settle()
        if not self._heap or self._heap[0][0] > now:
            return None
        _, _, key = heapq.heappop(self._heap)
        del self._deadlines[key], self._queued[key]
        return key

    def _push(self, key: KeyT, deadline: float) -> None:
        self._queued[key] = deadline
        self._sequence += 1
        heapq.heappush(self._heap, (deadline, self._sequence, key))

    def _settle(self) -> None:
        """Makes the top of the heap a current deadline."""
        while self._heap:
            queued, _, key = self._heap[0]
            deadline = self._deadlines.get(key)
            superseded = self._queued.get(key) != queued
            if not superseded and deadline == queued:
                return
            heapq.heappop(self._heap)
            if superseded:
                continue
            del self._queued[key]
            if deadline is not None:
                self._push(key, deadline)

    def _compact(self) -> None:
        self._queued = dict(self._deadlines)
        self._heap = [(at, number, key) for number, (key, at) in enumerate(self._queued.items())]
        self._sequence = len(self._heap)
        heapq.heapify(self._heap)
