"""Collects the calls of a callback from other threads."""

from __future__ import annotations

import threading
from typing import Generic, TypeVar

T = TypeVar("T")


class Collected(Generic[T]):
    """Calls with one argument, in order; a test can wait for them."""

    def __init__(self) -> None:
        self.items: list[T] = []
        self._changed = threading.Condition()

    def __call__(self, item: T) -> None:
        with self._changed:
            self.items.append(item)
            self._changed.notify_all()

    def wait(self, count: int, timeout_s: float = 15.0) -> list[T]:
        """The first `count` items."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.items) >= count, timeout_s), self.items
            return self.items[:count]
