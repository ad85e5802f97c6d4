"""Waiting for what another thread, process or task makes true: looked at again and again, to a deadline.

The one place where tests sleep for that. Where there is an event, a future or a process to wait for,
wait for it instead.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

WITHIN_S = 180.0
"""Long, because it costs nothing where all is well, and the machine may be busy."""
_LOOK_S = 0.01


def eventually(
    condition: Callable[[], T], what: str = "it did not come true", within_s: float = WITHIN_S
) -> T:
    """The first true value of `condition`; AssertionError with `what` at the deadline."""
    deadline = time.monotonic() + within_s
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not within {within_s:.0f} s: {what}"
        time.sleep(_LOOK_S)
    return found


async def until(
    condition: Callable[[], T | Awaitable[T]],
    what: str = "it did not come true",
    within_s: float = WITHIN_S,
) -> T:
    """The same in an event loop; `condition` may have to be awaited."""
    deadline = time.monotonic() + within_s
    while True:
        found = condition()
        if inspect.isawaitable(found):
            found = await found
        if found:
            return found  # type: ignore[return-value]
        assert time.monotonic() < deadline, f"not within {within_s:.0f} s: {what}"
        await asyncio.sleep(_LOOK_S)
