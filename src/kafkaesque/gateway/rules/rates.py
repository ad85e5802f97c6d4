"""How much a user may send: a bucket that fills at a steady rate up to a burst."""

from __future__ import annotations


class Bucket:
    """Time is an argument, in seconds."""

    __slots__ = ("_at_s", "_burst", "_rate", "_tokens")

    def __init__(self, rate: float, burst: int, now_s: float) -> None:
        self._rate = rate
        self._burst = burst
        self._tokens = float(burst)
        self._at_s = now_s

    def take(self, now_s: float) -> float:
        """0.0 if one may be sent now, else how many seconds to wait before trying again."""
        filled = self._tokens + (now_s - self._at_s) * self._rate
        self._tokens = min(float(self._burst), filled)
        self._at_s = now_s
        if self._tokens >= 1.0:
            self._tokens -= 1.0
            return 0.0
        return (1.0 - self._tokens) / self._rate
