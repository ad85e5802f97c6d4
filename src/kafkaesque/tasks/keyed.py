"""Who may run next: calls of one key one after the other, of different keys side by side. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from kafkaesque.model.errors import check

T = TypeVar("T")


class KeyedQueue(Generic[T]):
    """First come, first served, except that a key whose call is under way holds back its others."""

    def __init__(self, key_of: Callable[[T], bytes | None]) -> None:
        self._key_of = key_of
        """None: the call waits for no other and no other waits for it."""
        self._ready: deque[T] = deque()
        self._behind: dict[bytes, deque[T]] = {}
        """For each key that is ready or under way: those that wait for it."""
        self._behind_count = 0

    def __len__(self) -> int:
        """Items that have not been taken."""
        return len(self._ready) + self._behind_count

    def add(self, item: T) -> None:
        key = self._key_of(item)
        if key is None:
            self._ready.append(item)
            return
        behind = self._behind.get(key)
        if behind is None:
            self._behind[key] = deque()
            self._ready.append(item)
        else:
            behind.append(item)
            self._behind_count += 1

    def take(self) -> T | None:
        """The next to run; it holds its key until `release`."""
        return self._ready.popleft() if self._ready else None

    def release(self, item: T) -> None:
        """A taken item has ended."""
        key = self._key_of(item)
        if key is None:
            return
        behind = self._behind.get(key)
        check(behind is not None, "only a key that is held is released")
        if behind:
            self._behind_count -= 1
            self._ready.append(behind.popleft())
        else:
            del self._behind[key]

    def drop(self, unwanted: Callable[[T], bool]) -> list[T]:
        """Take out what has not been taken and is `unwanted`; taken items keep their keys."""
        dropped: list[T] = []
        for behind in self._behind.values():
            kept = [item for item in behind if not unwanted(item)]
            if len(kept) < len(behind):
                dropped += [item for item in behind if unwanted(item)]
                self._behind_count -= len(behind) - len(kept)
                behind.clear()
                behind.extend(kept)
        ready, self._ready = self._ready, deque()
        for item in ready:
            if unwanted(item):
                dropped.append(item)
                self.release(item)
            else:
                self._ready.append(item)
        return dropped
