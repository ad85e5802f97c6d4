"""Waiting for what other threads and servers do, with a deadline and without a fixed sleep."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


def eventually(condition: Callable[[], T], timeout_s: float = 15.0) -> T:
    """The first true result of `condition`."""
    deadline = time.monotonic() + timeout_s
    while not (result := condition()):
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.01)
    return result


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
