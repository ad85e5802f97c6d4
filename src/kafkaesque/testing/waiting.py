"""Polling for a condition, with a deadline and an error that names the condition."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

POLL_S = 0.01


def poll_until(
    look: Callable[[], T | None],
    what: str | Callable[[], str],
    within_s: float,
    *,
    poll_s: float = POLL_S,
    error: type[Exception] = TimeoutError,
) -> T:
    """Call `look` until it returns something other than None or False, and return that.

    Raises `error` after `within_s` seconds; its message names `what` was waited for.
    """
    deadline = time.monotonic() + within_s
    while True:
        seen = look()
        if seen is not None and seen is not False:
            return seen
        if time.monotonic() > deadline:
            raise error(f"not within {within_s:g} s: {what if isinstance(what, str) else what()}")
        time.sleep(poll_s)
