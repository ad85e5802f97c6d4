"""Stands in for the flusher's threads: syncs take time, and their outcome comes later still."""

from __future__ import annotations

from collections.abc import Callable

from kafkaesque.model.errors import StorageFailed
from kafkaesque.model.ids import Offset
from kafkaesque.replication.flusher import Syncable
from kafkaesque.sim.schedule import Action

Later = Callable[[int, Action], None]
"""Do it after so many microseconds, unless the process has died by then."""


class SimulatedSyncer:
    """Rounds as the flusher's: whatever is asked for during one waits for the next."""

    __slots__ = ("_asked", "_is_due", "_latency_us", "_later", "_under_way")

    def __init__(self, later: Later, latency_us: Callable[[], int]) -> None:
        self._later = later
        self._latency_us = latency_us
        self._asked: dict[Syncable, None] = {}
        self._under_way = 0
        self._is_due = False

    def ask(self, log: Syncable) -> None:
        self._asked[log] = None
        self._begin_soon()

    def _begin_soon(self) -> None:
        """Not at once: what is asked for together may reach the disk in any order."""
        if self._under_way == 0 and not self._is_due:
            self._is_due = True
            self._later(self._latency_us() // 8, self._start_round)

    def _start_round(self) -> None:
        self._is_due = False
        logs, self._asked = list(self._asked), {}
        self._under_way = len(logs)
        for log in logs:
            self._plan(log)

    def _plan(self, log: Syncable) -> None:
        self._later(self._latency_us(), lambda: self._perform(log))

    def _perform(self, log: Syncable) -> None:
        outcome: Offset | StorageFailed
        try:
            outcome = log.sync()
        except StorageFailed as error:
            outcome = error
        self._later(self._latency_us() // 4, lambda: self._report(log, outcome))

    def _report(self, log: Syncable, outcome: Offset | StorageFailed) -> None:
        self._under_way -= 1
        if isinstance(outcome, StorageFailed):
            log.sync_failed(outcome)
        else:
            log.synced(outcome)
        if self._asked:
            self._begin_soon()
