"""Waiting for what other threads and servers do, with a deadline and without a fixed sleep."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from tests import waiting

T = TypeVar("T")


def eventually(condition: Callable[[], T], timeout_s: float = 15.0) -> T:
    """The first true result of `condition`, within what a session may take to end."""
    return waiting.eventually(condition, within_s=timeout_s)


class Collected(Generic[T]):
    """Calls with one argument, kept in order; may be waited for."""

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
