"""A partition that is reopened after a disk error, with the node's sync journal."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.broker.partitions.rig import GROUP, ME, TOPIC_ID, GatedCalls, StepClock, batch
from tests.broker.replication.no_peers import Nowhere, no_prefix
from tests.waiting import until

from kafkaesque.broker.partitions import partition_table
from kafkaesque.broker.partitions.environment import Changes, Environment
from kafkaesque.broker.partitions.partition import Partition
from kafkaesque.broker.partitions.partition_table import PartitionTable, Placement
from kafkaesque.broker.replication.flusher import Flusher
from kafkaesque.broker.replication.raft_journal import RaftJournal
from kafkaesque.broker.replication.replica_set import ReplicaSet
from kafkaesque.broker.replication.sync_journal import SyncJournal
from kafkaesque.broker.storage.config import LogConfig
from kafkaesque.broker.storage.directory import DataDirectory
from kafkaesque.broker.storage.open_files import OpenFiles
from kafkaesque.model.errors import StorageFailed
from kafkaesque.model.ids import PartitionIndex
from kafkaesque.model.settings import TopicConfig

INDEX = PartitionIndex(0)


class TableRig:
    """One partition with this node as its only member. Every sync round uses the journal."""

    def __init__(self, table: PartitionTable, calls: GatedCalls, replicas: ReplicaSet) -> None:
        self.table = table
        self.calls = calls
        self._replicas = replicas

    @property
    def partition(self) -> Partition:
        partition = self.table.find("t", INDEX)
        assert partition is not None
        return partition

    async def append(self) -> None:
        """Append a batch and wait until it is durable."""
        partition = self.partition
        await until(lambda: partition.leads)
        partition.append(batch(b"value"), all_replicas=True)
        await until(lambda: partition.high_watermark == partition.log_end_offset)

    async def fail(self) -> None:
        """Fail the disk of the partition, and wait until it is reopened."""
        failed = self.partition
        failed.replica.sync_failed(StorageFailed("refused"))
        self.table.reopen_later(failed)
        await until(lambda: self.table.find("t", INDEX) is not failed)


@asynccontextmanager
async def open_table(directory: Path) -> AsyncIterator[TableRig]:
    loop = asyncio.get_running_loop()
    data, calls, clock = DataDirectory(directory), GatedCalls(), StepClock()
    files = OpenFiles(16, calls)
    journal = RaftJournal.open(data.raft_path, files)
    sync_journal = SyncJournal(data.raft_path, files, logs_min=1)
    flusher = Flusher(loop, sync_journal, lambda lost: replicas.logs_lost(lost))
    errors: list[BaseException] = []
    replicas = ReplicaSet(
        ME, journal, flusher, Nowhere(), no_prefix, clock, loop.call_soon, errors.append
    )
    env: Environment[Partition] = Environment(loop, clock, replicas, Changes(), True, "header")
    table = PartitionTable(data, files, env, clean=True)
    table.know("t", TOPIC_ID, 1, TopicConfig())
    await table.open(TOPIC_ID, [Placement(INDEX, GROUP, (ME,))])
    try:
        yield TableRig(table, calls, replicas)
    finally:
        await flusher.settled()
        table.stop()
        await flusher.close()
        table.close_all()
        files.close()
        data.close()
    assert errors == []


def run(directory: Path, story: Callable[[TableRig], Awaitable[None]]) -> None:
    async def begin() -> None:
        async with open_table(directory) as rig:
            await story(rig)

    asyncio.run(begin())


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_table, "REOPEN_SECONDS", 0.0)


def test_reopened_partition_has_what_only_the_journal_holds(
    tmp_path: Path,
) -> None:
    """Also in a segment that the log's small files do not list yet."""

    async def story(rig: TableRig) -> None:
        await rig.append()
        log = rig.partition.log
        await asyncio.to_thread(log.sync)
        log.set_config(LogConfig(segment_bytes=1))
        await rig.append()
        assert (log.file_synced_offset, log.synced_offset) == (1, 2)
        await rig.fail()
        assert rig.partition.log is not log
        assert rig.partition.log_end_offset == 2
        await rig.append()
        assert rig.partition.high_watermark == 3

    run(tmp_path, story)


def test_partition_whose_file_failed_has_what_only_the_journal_holds(
    tmp_path: Path,
) -> None:
    async def story(rig: TableRig) -> None:
        await rig.append()
        await rig.append()
        log = rig.partition.log
        assert (log.file_synced_offset, log.synced_offset) == (0, 2)
        rig.calls.broken = True
        with pytest.raises(StorageFailed):
            await asyncio.to_thread(log.sync)
        rig.calls.broken = False
        await rig.fail()
        assert rig.partition.log_end_offset == 2
        await rig.append()

    run(tmp_path, story)


@pytest.mark.pure
def test_producers_that_cannot_be_saved_do_not_end_maintenance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An exception there would stop the node, and a snapshot is only a shortcut for the next start."""
    tried: list[Partition] = []

    def no_room(partition: Partition) -> None:
        tried.append(partition)
        raise StorageFailed("No space left on device")

    monkeypatch.setattr(partition_table, "PRODUCER_SNAPSHOT_RECORDS", 1)

    async def story(rig: TableRig) -> None:
        await until(lambda: rig.partition.leads)
        rig.partition.append(batch(b"a", producer=7, sequence=0), all_replicas=True)
        with monkeypatch.context() as patch:
            patch.setattr(Partition, "save_producers", no_room)
            await rig.table.maintain(10**9)
        assert tried == [rig.partition]

    run(tmp_path, story)
