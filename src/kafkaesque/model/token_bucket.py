"""Limits a rate: so many a second in the long run, and a burst at once."""

from __future__ import annotations


class TokenBucket:
    """`per_second` tokens in the long run, `burst` at once. Times are monotonic seconds."""

    __slots__ = ("_burst", "_left", "_per_second", "_seen_s")

    def __init__(self, per_second: float, burst: float, now_s: float) -> None:
        self._per_second = per_second
        self._burst = burst
        self._left = burst
        self._seen_s = now_s

    def has_token(self, now_s: float) -> bool:
        self._fill(now_s)
        return self._left >= 1

    def take(self, now_s: float) -> float:
        """Takes one token and returns 0. If there is none, takes none and returns the seconds until
        there is one."""
        self._fill(now_s)
        if self._left < 1:
            return (1 - self._left) / self._per_second
        self._left -= 1
        return 0.0

    def take_next(self, now_s: float) -> float:
        """Takes one token, the next one if there is none now. Returns the seconds until it is
        there."""
        self._fill(now_s)
        self._left -= 1
        return max(0.0, -self._left / self._per_second)

    def _fill(self, now_s: float) -> None:
        self._left = min(self._burst, self._left + (now_s - self._seen_s) * self._per_second)
        self._seen_s = now_s
