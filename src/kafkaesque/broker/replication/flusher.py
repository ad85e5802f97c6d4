"""Group commit: syncs logs in worker threads, for as many waiting appends as possible at once.

While one round of syncs runs, further appends gather; the next round takes all of them. So the
number of syncs follows the speed of the disk and not the number of producers.

Many logs with little data each share one sync of the node's sync journal (`plan_round`,
`sync_journal`). The journal's files are removed in the background.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, Protocol

from kafkaesque.broker.replication.sync_journal import LogLost, SyncJournal
from kafkaesque.broker.storage.unsynced_tail import Share
from kafkaesque.model.errors import StorageFailed
from kafkaesque.model.ids import Offset

logger = logging.getLogger(__name__)

SYNC_THREADS = 4
"""Parallel fdatasync calls share the file system's journal commits; more threads than this gained
nothing on the machines measured and cost context switches."""


class Syncable(Protocol):
    """A log that can be synced: by a blocking `sync` in a worker thread, or by a journal that takes
    its `share`. The outcome is reported on the event loop."""

    def sync(self) -> Offset: ...

    def share(self) -> Share | None:
        """Returns what a journal has to hold in place of a `sync`; None if only `sync` will do."""

    def synced(self, offset: Offset) -> None: ...

    def sync_failed(self, error: StorageFailed) -> None: ...


class Shared(NamedTuple):
    log: Syncable
    share: Share


class Round(NamedTuple):
    by_file: Sequence[Syncable]
    by_journal: Sequence[Shared]


def plan_round(logs: Sequence[Syncable], journal: SyncJournal | None) -> Round:
    """Decides which logs use the journal. Logs sync their own files if they are few, if they have
    much to sync, or if the journal lags."""
    if journal is None or len(logs) < journal.logs_min:
        return Round(logs, ())
    by_file: list[Syncable] = []
    by_journal: list[Shared] = []
    size_bytes = 0
    for log in logs:
        share = log.share()
        if share is None:
            by_file.append(log)
        else:
            by_journal.append(Shared(log, share))
            size_bytes += share.size_bytes
    if len(by_journal) < journal.logs_min or not journal.has_room(size_bytes):
        return Round(logs, ())
    return Round(by_file, by_journal)


def report_shared(shared: Iterable[Shared]) -> None:
    """Reports to each log that the journal holds its share."""
    for log, share in shared:
        share.tail.note_durable(share)
        log.synced(share.end_offset)


def _log_lost(lost: Sequence[LogLost]) -> None:
    for group, _, error in lost:
        logger.error("group %d: %s", group, error)


class Flusher:
    """Runs rounds of syncs over the logs that requested one since the last round."""

    __slots__ = (
        "_executor",
        "_is_closed",
        "_logs_lost",
        "_loop",
        "_requested",
        "_retirement",
        "_rounds",
        "sync_journal",
        "syncs_total",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sync_journal: SyncJournal | None = None,
        logs_lost: Callable[[Sequence[LogLost]], None] = _log_lost,
    ) -> None:
        """`logs_lost` is called with logs that the journal could not sync when it retired a file:
        no replica had requested that sync."""
        self._loop = loop
        self._logs_lost = logs_lost
        # One thread more than a round uses, for removing journal files.
        self._executor = ThreadPoolExecutor(SYNC_THREADS + 1, thread_name_prefix="sync")
        self.sync_journal = sync_journal
        self._requested: dict[Syncable, None] = {}
        self._rounds: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self._retirement: asyncio.Task[None] | None = None
        self.syncs_total = 0

    def request_sync(self, log: Syncable) -> None:
        """Syncs `log` soon and then calls its `synced` or `sync_failed`. Does nothing once
        closed."""
        if self._is_closed:
            return
        self._requested[log] = None
        if not self._rounds:
            self._start_round()

    def _start_round(self) -> None:
        logs, self._requested = list(self._requested), {}
        task = self._loop.create_task(self._round(logs))
        self._rounds.add(task)
        task.add_done_callback(self._round_ended)

    def _round_ended(self, task: asyncio.Task[None]) -> None:
        self._rounds.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            if isinstance(error, RuntimeError) and "cannot schedule new futures" in str(error):
                # The interpreter is shutting down: nothing is synced or acknowledged any more.
                return
            raise error
        if self._requested:
            self._start_round()

    async def _round(self, logs: Sequence[Syncable]) -> None:
        by_file, by_journal = plan_round(logs, self.sync_journal)
        if by_journal:
            files = self._loop.create_task(self._sync_files(by_file)) if by_file else None
            await self._write_sync_journal(by_journal)
            if files is not None:
                await files
        else:
            await self._sync_files(by_file)
        journal = self.sync_journal
        if journal is not None and journal.has_closed_files and self._retirement is None:
            self._retirement = self._loop.create_task(self._retire(journal))

    async def _sync_files(self, logs: Sequence[Syncable]) -> None:
        slices = [logs[start::SYNC_THREADS] for start in range(min(SYNC_THREADS, len(logs)))]
        jobs = [self._loop.run_in_executor(self._executor, _sync_all, part) for part in slices]
        for part, job in zip(slices, jobs, strict=True):
            for log, outcome in zip(part, await job, strict=True):
                self.syncs_total += 1
                if isinstance(outcome, StorageFailed):
                    log.sync_failed(outcome)
                else:
                    log.synced(outcome)

    async def _write_sync_journal(self, shared: Sequence[Shared]) -> None:
        journal = self.sync_journal
        if journal is None:
            return
        shares = [share for _, share in shared]
        if await self._loop.run_in_executor(self._executor, journal.write, shares):
            self.syncs_total += 1
            report_shared(shared)
        else:
            await self._sync_files([log for log, _ in shared])

    async def _retire(self, journal: SyncJournal) -> None:
        before = journal.log_syncs_total
        try:
            self._logs_lost(await self._loop.run_in_executor(self._executor, journal.retire))
        finally:
            self.syncs_total += journal.log_syncs_total - before
            self._retirement = None

    async def settled(self) -> None:
        """Waits until no sync is requested or running."""
        while self._rounds:
            await asyncio.gather(*self._rounds)
            # The callback of the last round starts the next one, if any.
            await asyncio.sleep(0)

    async def close(self) -> None:
        """Finishes the requested syncs, then stops the threads."""
        await self.settled()
        self._is_closed = True
        if self.sync_journal is not None:
            self.sync_journal.stop_retiring()
        if self._retirement is not None:
            await self._retirement
        self._executor.shutdown()


def _sync_all(logs: Sequence[Syncable]) -> list[Offset | StorageFailed]:
    outcomes: list[Offset | StorageFailed] = []
    for log in logs:
        try:
            outcomes.append(log.sync())
        except StorageFailed as error:
            outcomes.append(error)
    return outcomes
