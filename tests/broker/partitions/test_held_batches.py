"""A leader whose disk is full holds a batch in memory: it counts as neither durable nor committed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from math import inf
from pathlib import Path

import pytest
from tests.broker.partitions.rig import ME, OTHER, PEER, Rig, acknowledge, batch, open_rig
from tests.broker.partitions.test_group_coordinator import (
    COMPACTED,
    SHUT,
    commit,
    committed,
    new_host,
)
from tests.waiting import until

from kafkaesque.broker.groups.types import CommitAnswer
from kafkaesque.broker.partitions.rules.admission import Appended
from kafkaesque.broker.replication.rules.pending_readies import TRIED_EVERY_TICKS
from kafkaesque.broker.storage.snapshots import list_snapshots
from kafkaesque.model.errors import StorageFailed
from kafkaesque.model.settings import TopicConfig

Story = Callable[[Rig], Awaitable[None]]


def play(directory: Path, story: Story, config: TopicConfig | None = None) -> None:
    async def main() -> None:
        async with open_rig(directory, config, members=(ME, PEER, OTHER)) as rig:
            await story(rig)

    asyncio.run(main())


def append(rig: Rig, value: bytes, sequence: int = -1) -> Appended:
    records = batch(value, producer=7 if sequence >= 0 else -1, sequence=sequence)
    appended = rig.partition.append(records, all_replicas=False)
    assert isinstance(appended, Appended)
    return appended


async def commit_all(rig: Rig) -> None:
    partition = rig.partition
    await rig.flusher.settled()
    acknowledge(partition.replica, PEER)
    await until(lambda: partition.high_watermark == partition.replica.next_offset)


async def make_room(rig: Rig) -> None:
    rig.calls.room_bytes = inf
    for _ in range(TRIED_EVERY_TICKS):
        rig.partition.replica.tick()
    await until(lambda: rig.partition.log_end_offset == rig.partition.replica.next_offset)
    await commit_all(rig)


def test_held_batch_is_not_acknowledged_before_it_is_committed_even_with_acks_1(
    tmp_path: Path,
) -> None:
    async def story(rig: Rig) -> None:
        written = append(rig, b"a")
        assert rig.partition.commit(written, all_replicas=False) is None
        rig.calls.room_bytes = 0
        held = append(rig, b"b")
        waits = rig.partition.commit(held, all_replicas=False)
        assert waits is not None
        with pytest.raises(StorageFailed):
            append(rig, b"c")
        await make_room(rig)
        await waits
        assert rig.partition.log_end_offset == held.end_offset

    play(tmp_path, story)


def test_producers_are_not_saved_while_they_include_a_held_batch(tmp_path: Path) -> None:
    """After a restart without the batch, a retry would be taken for a duplicate and acknowledged."""

    async def story(rig: Rig) -> None:
        append(rig, b"a", 0)
        await commit_all(rig)
        rig.calls.room_bytes = 2_000  # a snapshot fits
        append(rig, bytes(10_000), 1)
        rig.partition.save_producers()
        assert list_snapshots(rig.partition.log.directory) == []
        await make_room(rig)
        rig.partition.save_producers()
        assert list_snapshots(rig.partition.log.directory) == [2]

    play(tmp_path, story)


def test_reloaded_coordinator_reads_held_batches(tmp_path: Path) -> None:
    async def story(rig: Rig) -> None:
        host = new_host(rig)
        first = asyncio.create_task(host.ask(commit(50), CommitAnswer))
        await until(lambda: rig.partition.replica.next_offset == 1)
        await commit_all(rig)
        await first
        rig.calls.room_bytes = 0
        held = asyncio.create_task(host.ask(commit(100), CommitAnswer))
        await until(lambda: rig.partition.replica.next_offset == 2)
        refused = asyncio.create_task(host.ask(commit(100), CommitAnswer))
        await asyncio.gather(held, refused, return_exceptions=True)
        assert host.registry is None, "it reads its log anew"
        await make_room(rig)
        await until(lambda: host.registry is not None)
        assert committed(host) == 100
        host.close(SHUT)

    play(tmp_path, story, COMPACTED)
