"""The election timeout, counted in ticks from the driver. Randomness is passed in."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Jitter: TypeAlias = Callable[[int], int]
"""`jitter(n)` returns a number from 0 to n - 1 that should differ between nodes."""

NEVER_TICKS = 2**62


class ElectionClock:
    """Ticks since the election timeout was last reset, and since a leader was last heard."""

    __slots__ = ("_jitter", "base_ticks", "elapsed_ticks", "since_leader_ticks", "timeout_ticks")

    def __init__(self, base_ticks: int, jitter: Jitter) -> None:
        self.base_ticks = base_ticks
        self._jitter = jitter
        self.elapsed_ticks = 0
        self.timeout_ticks = base_ticks
        """base_ticks <= timeout_ticks < 2 * base_ticks, drawn again at each restart; shorter only if
        the leader is known to be gone."""
        self.since_leader_ticks = NEVER_TICKS
        """Since a leader of our term or a later one was heard. While it is below `base_ticks`, other
        candidates get no vote, whatever our term is by then."""
        self.restart()

    def restart(self) -> None:
        self.elapsed_ticks = 0
        self.timeout_ticks = self.base_ticks + self._jitter(self.base_ticks)

    def heard_leader(self) -> None:
        """Keeps the drawn timeout, unless it was shortened: drawing one for every message would only
        cost time."""
        self.elapsed_ticks = 0
        self.since_leader_ticks = 0
        if self.timeout_ticks < self.base_ticks:
            self.restart()

    def forget_leader(self) -> None:
        self.since_leader_ticks = NEVER_TICKS

    def shorten_timeout(self) -> None:
        """The leader is gone: wait only long enough to keep two candidates apart."""
        self.timeout_ticks = self.elapsed_ticks + 1 + self._jitter(max(2, self.base_ticks // 2))

    def tick(self) -> bool:
        """True when the election timeout has elapsed."""
        self.elapsed_ticks += 1
        self.since_leader_ticks += 1
        return self.elapsed_ticks >= self.timeout_ticks

    @property
    def hears_leader(self) -> bool:
        return self.since_leader_ticks < self.base_ticks
