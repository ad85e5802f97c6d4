"""Exponential backoff: the wait before each attempt doubles up to a longest one. Pure.

`backoff_s` is the arithmetic; `Backoff` also counts the failures, for the usual retry loop:

    backoff = Backoff(0.5, 15.0)
    while True:
        try:
            ...
            backoff.reset()
        except LogError:
            await asyncio.sleep(backoff.next_s())
"""

from __future__ import annotations

from collections.abc import Callable

_DOUBLINGS_MAX = 64
"""Far beyond every cap in use, and far below where a float overflows."""


def backoff_s(failures: int, first_s: float, longest_s: float) -> float:
    """The wait after `failures` earlier failures in a row: `first_s` for 0, then doubling."""
    return min(longest_s, first_s * 2.0 ** min(failures, _DOUBLINGS_MAX))


class Backoff:
    """The waits of one retry loop.

    Each wait is multiplied by `jitter()`, so that many clients that fail together do not all
    retry together.
    """

    __slots__ = ("_failures", "_first_s", "_jitter", "_longest_s")

    def __init__(
        self, first_s: float, longest_s: float, jitter: Callable[[], float] | None = None
    ) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._jitter = jitter
        self._failures = 0

    def next_s(self) -> float:
        """Counts one more failure and returns how long to wait after it."""
        wait_s = backoff_s(self._failures, self._first_s, self._longest_s)
        self._failures += 1
        return wait_s if self._jitter is None else wait_s * self._jitter()

    def reset(self) -> None:
        """The next wait is the first one again."""
        self._failures = 0
