"""How fast a client may go on: a bucket of allowances that time refills."""

from __future__ import annotations


class Pace:
    """`per_second` commands in the long run, `burst` at once. Times are monotonic seconds."""

    __slots__ = ("_burst", "_left", "_per_second", "_seen_s")

    def __init__(self, per_second: float, burst: float, now_s: float) -> None:
        self._per_second = per_second
        self._burst = burst
        self._left = burst
        self._seen_s = now_s

    def wait_s(self, now_s: float) -> float:
        """Take one allowance: how long to wait before going on, 0 if there was one."""
        self._left = min(self._burst, self._left + (now_s - self._seen_s) * self._per_second)
        self._seen_s = now_s
        self._left -= 1
        return max(0.0, -self._left / self._per_second)
