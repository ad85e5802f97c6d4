"""A simulated flusher: syncs take time, and their outcomes are delivered later still."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kafkaesque.broker.replication.flusher import Shared, Syncable, plan_round, report_shared
from kafkaesque.broker.replication.sync_journal import LogLost, SyncJournal
from kafkaesque.lab.sim.schedule import Action
from kafkaesque.model.errors import StorageFailed
from kafkaesque.model.ids import Offset

Later = Callable[[int, Action], None]
"""Runs the action after this many microseconds, unless the process has died by then."""


class SimulatedSyncer:
    """Syncs in rounds, like the flusher: requests during a round wait for the next one."""

    __slots__ = (
        "_is_due",
        "_is_retiring",
        "_latency_us",
        "_later",
        "_logs_lost",
        "_requested",
        "_under_way",
        "sync_journal",
    )

    def __init__(
        self,
        later: Later,
        latency_us: Callable[[], int],
        sync_journal: SyncJournal,
        logs_lost: Callable[[Sequence[LogLost]], None],
    ) -> None:
        self._later = later
        self._latency_us = latency_us
        self.sync_journal = sync_journal
        self._logs_lost = logs_lost
        self._is_retiring = False
        self._requested: dict[Syncable, None] = {}
        self._under_way = 0
        self._is_due = False

    def request_sync(self, log: Syncable) -> None:
        self._requested[log] = None
        self._begin_soon()

    def _begin_soon(self) -> None:
        """Starts a round with a delay, so that requests made together may reach the disk in any order."""
        if self._under_way == 0 and not self._is_due:
            self._is_due = True
            self._later(self._latency_us() // 8, self._start_round)

    def _start_round(self) -> None:
        self._is_due = False
        logs, self._requested = list(self._requested), {}
        by_file, by_journal = plan_round(logs, self.sync_journal)
        self._under_way = len(by_file) + bool(by_journal)
        for log in by_file:
            self._plan(log)
        if by_journal:
            self._later(self._latency_us(), lambda: self._write_journal(by_journal))

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
        if isinstance(outcome, StorageFailed):
            log.sync_failed(outcome)
        else:
            log.synced(outcome)
        self._reported()

    def _reported(self) -> None:
        self._under_way -= 1
        if self._under_way == 0 and self.sync_journal.has_closed_files and not self._is_retiring:
            self._is_retiring = True
            self._later(4 * self._latency_us(), self._retire)
        if self._requested:
            self._begin_soon()

    def _write_journal(self, shared: Sequence[Shared]) -> None:
        if self.sync_journal.write([share for _, share in shared]):
            self._later(self._latency_us() // 4, lambda: self._report_shared(shared))
            return
        self._under_way += len(shared) - 1
        for log, _ in shared:
            self._plan(log)

    def _report_shared(self, shared: Sequence[Shared]) -> None:
        report_shared(shared)
        self._reported()

    def _retire(self) -> None:
        self._is_retiring = False
        self._logs_lost(self.sync_journal.retire())
