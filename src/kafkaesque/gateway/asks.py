"""Questions that wait for their answer. All have the same patience, so the oldest is always due first."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from kafkaesque.events.gateway import Reply

Answered = Callable[[Reply | None], None]
"""Told the answer, or None when it did not come in time."""


class Asks:
    """Bounded: a question beyond `count_max` is not taken. Time is an argument, in seconds."""

    def __init__(self, name: str, timeout_s: float, count_max: int) -> None:
        self._name = name
        self._timeout_s = timeout_s
        self._count_max = count_max
        self._number = 0
        self._waiting: dict[str, Answered] = {}
        self._due: deque[tuple[float, str]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def begin(self, answered: Answered, now_s: float) -> str | None:
        """The correlation to send along; None when too many wait."""
        if len(self._waiting) >= self._count_max:
            return None
        self._number += 1
        correlation = f"{self._name}-{self._number}"
        self._waiting[correlation] = answered
        self._due.append((now_s + self._timeout_s, correlation))
        return correlation

    def answer(self, correlation: str, reply: Reply) -> bool:
        """False for an answer that nobody waits for (any more): a repeat, or too late."""
        answered = self._waiting.pop(correlation, None)
        if answered is None:
            return False
        answered(reply)
        return True

    def forget(self, correlation: str) -> None:
        """The question never left."""
        self._waiting.pop(correlation, None)

    def expire(self, now_s: float) -> int:
        """Tell those whose time is up; how many."""
        count = 0
        for correlation in self._overdue(now_s):
            answered = self._waiting.pop(correlation, None)
            if answered is not None:
                answered(None)
                count += 1
        return count

    def _overdue(self, now_s: float) -> Iterator[str]:
        while self._due and self._due[0][0] <= now_s:
            yield self._due.popleft()[1]
