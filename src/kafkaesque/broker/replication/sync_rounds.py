"""What a round of syncs does: which logs sync their own file, and which share the node's journal.

Rules only; `flusher` has the threads.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from kafkaesque.broker.replication.sync_journal import SyncJournal
from kafkaesque.broker.storage.unsynced_tail import Share
from kafkaesque.model.errors import StorageFailed
from kafkaesque.model.ids import Offset


class Syncable(Protocol):
    """What is synced: blocking `sync` in a worker thread, or a journal that takes its `share`; then
    the outcome on the loop."""

    def sync(self) -> Offset: ...

    def share(self) -> Share | None:
        """What a journal would have to hold in place of `sync`; None if only that will do."""

    def synced(self, offset: Offset) -> None: ...

    def sync_failed(self, error: StorageFailed) -> None: ...


class Shared(NamedTuple):
    log: Syncable
    share: Share


class Round(NamedTuple):
    by_file: Sequence[Syncable]
    by_journal: Sequence[Shared]


def plan_round(logs: Sequence[Syncable], journal: SyncJournal | None) -> Round:
    """Few logs sync their own files, as do those with much to sync, and all while the journal lags."""
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
    """Tell every log that the journal holds its share."""
    for log, share in shared:
        share.tail.note_durable(share)
        log.synced(share.end_offset)
