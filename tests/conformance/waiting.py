"""Waiting for what a distributed system makes true a little later, without guessing how long."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(attempt: Callable[[], T], timeout_s: float = 20, pause_s: float = 0.02) -> T:
    """The first result of `attempt` that raises no AssertionError; its last one at the deadline."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return attempt()
        except AssertionError:
            if time.monotonic() > deadline:
                raise
        time.sleep(pause_s)
        pause_s = min(0.25, pause_s * 1.5)
