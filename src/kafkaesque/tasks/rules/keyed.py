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

    def is_busy(self, key: bytes) -> bool:
        """Whether one that is added now would wait."""
        return key in self._behind

    def behind(self, key: bytes) -> int:
        """How many wait for a call of their key."""
        return len(self._behind.get(key, ()))

    def add(self, item: T) -> bool:
        """Whether it may run at once."""
        key = self._key_of(item)
        behind = None if key is None else self._behind.get(key)
        if behind is not None:
            behind.append(item)
            self._behind_count += 1
            return False
        if key is not None:
            self._behind[key] = deque()
        self._ready.append(item)
        return True

    def take(self) -> T | None:
        """The next to run; it holds its key until `release`."""
        return self._ready.popleft() if self._ready else None

    def release(self, item: T) -> T | None:
        """A taken item has ended: the one that may run now because of that."""
        key = self._key_of(item)
        if key is None:
            return None
        behind = self._behind.get(key)
        check(behind is not None, "only a key that is held is released")
        if not behind:
            del self._behind[key]
            return None
        self._behind_count -= 1
        following = behind.popleft()
        self._ready.append(following)
        return following

    def drop(self, unwanted: Callable[[T], bool]) -> tuple[list[T], list[T]]:
        """Take out what has not been taken and is `unwanted`; taken items keep their keys. What was
        taken out, and what may run now because of that."""
        dropped: list[T] = []
        following: list[T] = []
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
                next_of_key = self.release(item)
                following += [] if next_of_key is None else [next_of_key]
            else:
                self._ready.append(item)
        return dropped, following
