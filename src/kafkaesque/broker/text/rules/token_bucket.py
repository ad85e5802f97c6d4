"""A token bucket that limits the rate of commands."""

from __future__ import annotations


class TokenBucket:
    """`per_second` commands in the long run, `burst` at once. Times are monotonic seconds."""

    __slots__ = ("_burst", "_left", "_per_second", "_seen_s")

    def __init__(self, per_second: float, burst: float, now_s: float) -> None:
        self._per_second = per_second
        self._burst = burst
        self._left = burst
        self._seen_s = now_s

    def wait_s(self, now_s: float) -> float:
        """Takes one token. Returns how long to wait for it; 0 if there was one."""
        self._left = min(self._burst, self._left + (now_s - self._seen_s) * self._per_second)
        self._seen_s = now_s
        self._left -= 1
        return max(0.0, -self._left / self._per_second)
