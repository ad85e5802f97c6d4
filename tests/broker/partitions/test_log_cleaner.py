"""The cleaner of a node on a real partition: which logs it cleans, and how far."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import wraps
from pathlib import Path

from tests.broker.partitions.rig import ME, OTHER, PEER, Rig, acknowledge, batch, open_rig

from kafkaesque.broker.partitions.log_cleaner import LogCleaner
from kafkaesque.broker.partitions.producer_state import load_producers
from kafkaesque.broker.partitions.rules.open_transactions import AbortedIndex
from kafkaesque.model.ids import Offset
from kafkaesque.model.settings import BrokerConfig, TopicConfig
from kafkaesque.records.batch import iter_batches
from kafkaesque.records.codec import Record, decode_batch, encode_batch

COMPACTED = TopicConfig(
    cleanup_policy=("compact",), segment_bytes=300, min_cleanable_dirty_ratio=0.1
)


def on_a_loop(story: Callable[[Path], Awaitable[None]]) -> Callable[[Path], None]:
    @wraps(story)
    def run(tmp_path: Path) -> None:
        asyncio.run(story(tmp_path))  # type: ignore[arg-type]

    return run


def cleaner_of(rig: Rig) -> LogCleaner:
    journal = rig.partition._env.replicas.raft_journal
    return LogCleaner([rig.partition], journal, BrokerConfig, rig.clock)


async def append(rig: Rig, count: int, *, producer: int = -1) -> None:
    for number in range(count):
        sequence = number if producer >= 0 else -1
        done = rig.partition.append(
            batch(b"v%d" % number, key=b"k%d" % (number % 3), producer=producer, sequence=sequence),
            all_replicas=True,
        )
        appended = await done if isinstance(done, asyncio.Task) else done
        committed = rig.partition.commit(appended, all_replicas=True)
        if committed is not None and rig.partition.replica.is_alone:
            await committed


def values(rig: Rig) -> list[bytes | None]:
    log, found, offset = rig.partition.log, [], rig.partition.log_start_offset
    while offset < log.log_end_offset:
        result = log.read(offset, 10**6, limit_offset=log.log_end_offset)
        for position, _ in iter_batches(result.records):
            found += [record.value for record in decode_batch(result.records, position)]
        offset = result.next_offset
    return found


@on_a_loop
async def test_dirty_log_is_cleaned_and_stays_as_it_is_after(tmp_path: Path) -> None:
    async with open_rig(tmp_path, COMPACTED) as rig:
        await append(rig, 40, producer=7)
        cleaner = cleaner_of(rig)
        assert cleaner.dirty_ratios()[0][1] == 1.0
        await cleaner.round()
        assert cleaner.stats.cleanings == 1
        assert cleaner.stats.failures == 0
        assert cleaner.dirty_ratios()[0][1] == 0.0
        left = values(rig)
        assert left[-3:] == [b"v37", b"v38", b"v39"]
        assert len(left) < 10
        await cleaner.round()
        assert cleaner.stats.cleanings == 1
        known = load_producers(rig.partition.replica.entries).get(7)  # type: ignore[arg-type]
        assert known is not None
        assert known.last_sequence == 39
    async with open_rig(tmp_path, COMPACTED) as again:
        assert values(again) == left
        await append(again, 1)
        assert values(again)[-1] == b"v0"


@on_a_loop
async def test_batches_that_a_follower_lacks_are_not_cleaned(tmp_path: Path) -> None:
    async with open_rig(tmp_path, COMPACTED, members=(ME, PEER, OTHER)) as rig:
        await append(rig, 40)
        cleaner = cleaner_of(rig)
        await cleaner.round()
        assert cleaner.stats.cleanings == 0
        assert len(values(rig)) == 40
        await rig.flusher.settled()
        acknowledge(rig.partition.replica, PEER)
        await cleaner.round()


@on_a_loop
async def test_log_that_only_deletes_is_not_cleaned(tmp_path: Path) -> None:
    async with open_rig(tmp_path, TopicConfig(segment_bytes=300)) as rig:
        await append(rig, 20)
        cleaner = cleaner_of(rig)
        await cleaner.round()
        assert cleaner.dirty_ratios() == []
        assert len(values(rig)) == 20


@on_a_loop
async def test_last_segment_of_a_quiet_log_is_closed_and_cleaned(tmp_path: Path) -> None:
    config = TopicConfig(cleanup_policy=("compact",), segment_ms=1000)
    async with open_rig(tmp_path, config) as rig:
        await append(rig, 20)
        cleaner = cleaner_of(rig)
        await cleaner.round()
        assert len(values(rig)) == 20
        rig.clock.advance(10**12)
        await cleaner.round()
        assert values(rig) == [b"v17", b"v18", b"v19"]


def test_aborted_transactions_whose_markers_are_removed_are_forgotten() -> None:
    index = AbortedIndex()
    for first in (10, 20, 30):
        index.add(7, first, first + 5, first + 6)  # type: ignore[arg-type]
    index.forget([25])  # type: ignore[list-item]
    assert [row[1] for row in index.rows()] == [10, 30]
    assert [one.first_offset for one in index.between(0, 100)] == [10, 30]  # type: ignore[arg-type]
    index.forget([15, 35])  # type: ignore[list-item]
    assert len(index) == 0


BOTH = TopicConfig(
    cleanup_policy=("compact", "delete"),
    segment_bytes=300,
    min_cleanable_dirty_ratio=0.1,
    retention_ms=10_000,
)


async def write(rig: Rig, *pairs: tuple[bytes, bytes]) -> None:
    """Keys and values, each as a batch with the current time."""
    for key, value in pairs:
        record = Record(Offset(0), rig.clock.wall_ms(), key, value)
        done = rig.partition.append(memoryview(encode_batch([record])), all_replicas=True)
        committed = rig.partition.commit(
            await done if isinstance(done, asyncio.Task) else done, all_replicas=True
        )
        if committed is not None:
            await committed


def updates(count: int) -> list[tuple[bytes, bytes]]:
    return [(b"k%d" % (number % 3), b"v%d" % number) for number in range(count)]


@on_a_loop
async def test_log_that_compacts_and_deletes_drops_old_keys_and_superseded_values(
    tmp_path: Path,
) -> None:
    async with open_rig(tmp_path, BOTH) as rig:
        cleaner = cleaner_of(rig)
        await write(rig, *((b"old%d" % number, b"old%d" % number) for number in range(20)))
        rig.clock.advance(6_000)
        await write(rig, *updates(30))
        await cleaner.round()
        cleaned = values(rig)
        assert cleaned[:20] == [b"old%d" % number for number in range(20)]
        assert len(cleaned) < 40
        rig.clock.advance(6_000)
        await rig.partition.expire(rig.clock.wall_ms())
        left = values(rig)
        assert rig.partition.log_start_offset > 0
        assert b"old0" not in left
        assert left[-3:] == [b"v27", b"v28", b"v29"]
        assert left == cleaned[-len(left) :]
        await cleaner.round()
        assert values(rig) == left
        rig.clock.advance(10_001)
        await rig.partition.expire(rig.clock.wall_ms())
        assert values(rig) == []
        await write(rig, *updates(30))
        await cleaner.round()
        assert len(values(rig)) < 20
        assert values(rig)[-3:] == [b"v27", b"v28", b"v29"]


@on_a_loop
async def test_log_that_only_compacts_loses_nothing_by_age(tmp_path: Path) -> None:
    config = TopicConfig(cleanup_policy=("compact",), segment_bytes=300, retention_ms=10_000)
    async with open_rig(tmp_path, config) as rig:
        await write(rig, *updates(20))
        rig.clock.advance(10**9)
        await rig.partition.expire(rig.clock.wall_ms())
        assert len(values(rig)) == 20
