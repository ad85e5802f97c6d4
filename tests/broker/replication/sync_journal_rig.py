"""A node's logs and their sync journal on a simulated disk that loses unsynced writes."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any

from tests.broker.storage.batches import make_batch

from kafkaesque.broker.replication.sync_journal import SyncJournal
from kafkaesque.broker.replication.sync_journal_recovery import list_files, recover_sync_journal
from kafkaesque.broker.storage.config import LogConfig
from kafkaesque.broker.storage.log import Log
from kafkaesque.broker.storage.open_files import OpenFiles
from kafkaesque.lab.sim.disk import SimulatedDisk
from kafkaesque.model.ids import GroupId, LeaderEpoch, Offset
from kafkaesque.records.batch import BatchHeader, iter_batches, read_header

DIRECTORY = "/data/raft"


class KeepNothing(Random):
    """A crash loses everything that was not synced."""

    def randrange(self, *_: Any, **__: Any) -> int:
        return 0


class JournalRig:
    def __init__(
        self, random: Random | None = None, *, segment_bytes: int = 100_000, file_bytes: int = 10**6
    ) -> None:
        self.disk = SimulatedDisk(random or KeepNothing(), lambda: 1000)
        self.config = LogConfig(segment_bytes=segment_bytes)
        self.file_bytes = file_bytes
        self.disk.make_directories(DIRECTORY)
        self.disk.sync_directory("/")
        self.disk.sync_directory("/data")
        self.logs: dict[GroupId, Log] = {}
        self.starts: dict[GroupId, Offset] = {}
        """The start offsets of groups whose entries do not begin at 0."""
        self.start()

    def start(self, groups: Iterable[int] = range(100)) -> None:
        self.files = OpenFiles(8, self.disk)
        starts = {GroupId(group): Offset(0) for group in groups}
        recover_sync_journal(DIRECTORY, self.files, starts | self.starts)
        self.journal = SyncJournal(
            DIRECTORY, self.files, file_size_bytes_max=self.file_bytes, logs_min=1
        )
        for group in list(self.logs):
            self.open(group)

    def restart(self) -> None:
        """Simulate a power failure and a restart."""
        self.disk.crash()
        self.start()

    def open(self, group: int) -> Log:
        log = Log.open(self.path(group), self.config, self.files, clean=False)
        self.journal.attach(GroupId(group), log)
        self.logs[GroupId(group)] = log
        return log

    def path(self, group: int) -> str:
        return f"/data/logs/{group}"

    def append(self, group: int, count: int = 1, *, epoch: int = 1, size_bytes: int = 20) -> bytes:
        log = self.logs.get(GroupId(group)) or self.open(group)
        offset = int(log.log_end_offset)
        data = bytes(make_batch(offset, count, epoch=LeaderEpoch(epoch), size_bytes=size_bytes))
        log.append(data, read_header(data), 1000)
        return data

    def sync(self, *groups: int) -> bool:
        """Sync these logs, or all, in one round."""
        logs = [self.logs[GroupId(group)] for group in groups] or list(self.logs.values())
        shared = [(log, share) for log in logs if (share := log.share()) is not None]
        for log in logs:
            if log.share() is None:
                log.sync()
        is_written = self.journal.write([share for _, share in shared])
        if is_written:
            for log, share in shared:
                log.note_durable(share)
        return is_written

    def journal_files(self) -> list[str]:
        return list_files(DIRECTORY, self.files)

    def content(self, group: int) -> list[BatchHeader]:
        return list(self.logs[GroupId(group)].headers_from(Offset(0)))


def headers(*batches: bytes) -> list[BatchHeader]:
    return [header for batch in batches for _, header in iter_batches(batch)]
