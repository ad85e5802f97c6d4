"""When records are visible, when they are acknowledged, and how an append changes the log."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.broker.partitions.rig import ME, OTHER, PEER, START_MS, acknowledge, batch, open_rig
from tests.broker.replication.no_peers import Nowhere

from kafkaesque.broker.partitions.partition import Partition
from kafkaesque.broker.partitions.producer_state import load_producers, read_producers
from kafkaesque.broker.partitions.rules.admission import Appended
from kafkaesque.broker.partitions.rules.producers import PIPELINE_SECONDS
from kafkaesque.broker.partitions.waiting import BytesAwaited
from kafkaesque.broker.replication.replica import Replica
from kafkaesque.model.errors import (
    CorruptMessage,
    FencedLeaderEpoch,
    MessageTooLarge,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    OutOfOrderSequence,
    StorageFailed,
    UnknownLeaderEpoch,
    UnknownTopicOrPartition,
)
from kafkaesque.model.ids import Offset, TimestampMs
from kafkaesque.model.settings import TopicConfig
from kafkaesque.records.batch import iter_batches, read_header
from kafkaesque.records.codec import decode_batch


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(story)


def append(partition: Partition, data: memoryview, *, all_replicas: bool = True) -> Appended:
    appended = partition.append(data, all_replicas=all_replicas)
    assert isinstance(appended, Appended)
    return appended


async def committed(partition: Partition, data: memoryview) -> Appended:
    appended = append(partition, data)
    commit = partition.commit(appended, all_replicas=True)
    if commit is not None:
        await commit
    return appended


def test_record_is_invisible_and_unacknowledged_until_it_is_synced(tmp_path: Path) -> None:
    async def story() -> None:
        async with open_rig(tmp_path) as rig:
            rig.calls.gate.clear()
            appended = append(rig.partition, batch(b"a", b"b"))
            commit = rig.partition.commit(appended, all_replicas=True)
            assert commit is not None
            assert rig.partition.high_watermark == 0
            assert not rig.partition.read(Offset(0), 1000, at_least_one=True).records
            with pytest.raises(OffsetOutOfRange):
                rig.partition.read(Offset(1), 1000, at_least_one=True)
            rig.calls.gate.set()
            await commit
            assert rig.partition.high_watermark == 2
            assert rig.partition.read(Offset(0), 1000, at_least_one=True).records

    run(story())


def test_changed_settings_apply_to_the_next_batch(tmp_path: Path) -> None:
    async def story() -> None:
        async with open_rig(tmp_path, flush_always=False) as rig:
            append(rig.partition, batch(b"a"))
            rig.partition.set_config(TopicConfig(max_message_bytes=len(batch(b"a")) - 1))
            with pytest.raises(MessageTooLarge):
                append(rig.partition, batch(b"a"))
            rig.partition.set_config(TopicConfig(message_timestamp_type="LogAppendTime"))
            assert append(rig.partition, batch(b"a")).append_time_ms == START_MS
            rig.partition.set_config(TopicConfig(cleanup_policy=("compact",)))
            inspected = rig.partition.append(batch(b"a"), all_replicas=True)
            assert isinstance(inspected, asyncio.Task)
            assert (await inspected).base_offset == 2

    run(story())


def test_acks_1_waits_for_the_commit_on_a_lone_replica(tmp_path: Path) -> None:
    """A client whose record was acknowledged can read it back at once."""

    async def story() -> None:
        async with open_rig(tmp_path) as rig:
            rig.calls.gate.clear()
            appended = append(rig.partition, batch(b"a"), all_replicas=False)
            commit = rig.partition.commit(appended, all_replicas=False)
            assert commit is not None
            assert not commit.done()
            rig.calls.gate.set()
            await commit
            assert rig.partition.high_watermark == 1

    run(story())


def test_one_of_several_replicas_acknowledges_acks_1_at_once(tmp_path: Path) -> None:
    async def story() -> None:
        async with open_rig(tmp_path, members=(ME, PEER, OTHER)) as rig:
            appended = append(rig.partition, batch(b"a"), all_replicas=False)
            assert rig.partition.commit(appended, all_replicas=False) is None
            later = append(rig.partition, batch(b"b"))
            commit = rig.partition.commit(later, all_replicas=True)
            assert commit is not None
            await rig.flusher.settled()
            assert not commit.done()
            acknowledge(rig.partition.replica, PEER)
            await commit
            assert rig.partition.high_watermark == 2

    run(story())


def test_appends_while_a_sync_runs_share_the_next_one(tmp_path: Path) -> None:
    async def story() -> None:
        async with open_rig(tmp_path) as rig:
            first = rig.partition.commit(append(rig.partition, batch(b"0")), all_replicas=True)
            assert first is not None
            await first
            before = rig.calls.count
            commits = [
                rig.partition.commit(append(rig.partition, batch(b"x")), all_replicas=True)
                for _ in range(50)
            ]
            await asyncio.gather(*(commit for commit in commits if commit is not None))
            assert rig.calls.count - before <= 4
            assert rig.partition.high_watermark == 51

    run(story())


def test_failed_sync_fails_the_acknowledgement_and_all_later_appends(tmp_path: Path) -> None:
    async def story() -> None:
        async with open_rig(tmp_path) as rig:
            rig.calls.broken = True
            commit = rig.partition.commit(append(rig.partition, batch(b"a")), all_replicas=True)
            assert commit is not None
            with pytest.raises(StorageFailed):
                await commit
            assert rig.partition.high_watermark == 0
            with pytest.raises(StorageFailed):
                append(rig.partition, batch(b"b"))

    run(story())


def test_flush_never_shows_and_acknowledges_from_the_page_cache(tmp_path: Path) -> None:
    async def story() -> None:
        async with open_rig(tmp_path, flush_always=False) as rig:
            appended = append(rig.partition, batch(b"a"))
            assert rig.partition.high_watermark == 1
            assert rig.partition.commit(appended, all_replicas=True) is None
            assert rig.calls.count == 0

    run(story())


def test_readers_of_a_lone_broker_are_woken_by_a_write_that_needs_no_sync(tmp_path: Path) -> None:
    async def story() -> None:
        async with open_rig(tmp_path, flush_always=False) as rig:
            watcher = BytesAwaited(1, asyncio.get_running_loop())
            rig.partition.watch(watcher)
            append(rig.partition, batch(b"a"))
            await watcher.done

    run(story())


def test_batch_after_flush_messages_became_one_is_synced_and_acknowledged(tmp_path: Path) -> None:
    async def story() -> None:
        async with open_rig(tmp_path, flush_always=False) as rig:
            append(
                rig.partition, batch(b"a")
            )  # committed by the write: Raft is not informed of it yet
            rig.partition.set_config(replace(rig.partition.config, flush_messages=1))
            for value in (b"b", b"c"):
                appended = append(rig.partition, batch(value))
                commit = rig.partition.commit(appended, all_replicas=True)
                assert commit is not None
                await commit
                assert rig.partition.log.synced_offset == appended.end_offset
            replica = rig.partition.replica
            assert replica.raft.last_index == replica.entries.last_index

    run(story())


def test_commit_is_reported_even_if_a_later_batch_is_committed_by_its_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch that comes right after a sync, before its commit is reported, must not hide it."""

    async def story() -> None:
        async with open_rig(tmp_path, TopicConfig(flush_messages=2), flush_always=False) as rig:
            partition, synced = rig.partition, Replica.synced
            append(partition, batch(b"a"))
            commit = partition.commit(append(partition, batch(b"b")), all_replicas=True)
            assert commit is not None

            def then_appends(replica: Replica, offset: Offset) -> None:
                monkeypatch.undo()
                synced(replica, offset)
                append(partition, batch(b"c"))

            monkeypatch.setattr(Replica, "synced", then_appends)
            await asyncio.wait_for(commit, 60)

    run(story())


def test_flush_messages_syncs_before_the_last_of_them_is_acknowledged(tmp_path: Path) -> None:
    async def story() -> None:
        config = TopicConfig(flush_messages=2)
        async with open_rig(tmp_path, config, flush_always=False) as rig:
            first = append(rig.partition, batch(b"a"))
            assert rig.partition.commit(first, all_replicas=True) is None
            assert rig.partition.log.synced_offset == 0
            second = append(rig.partition, batch(b"b"), all_replicas=False)
            commit = rig.partition.commit(second, all_replicas=False)
            assert commit is not None
            await commit
            assert rig.partition.log.synced_offset == 2

    run(story())


def test_flush_ms_syncs_records_that_have_waited_long_enough(tmp_path: Path) -> None:
    async def story() -> None:
        config = TopicConfig(flush_ms=100)
        async with open_rig(tmp_path, config, flush_always=False) as rig:
            append(rig.partition, batch(b"a"))
            rig.clock.advance(99)
            rig.partition.flush_if_due()
            await rig.flusher.settled()
            assert rig.partition.log.synced_offset == 0
            rig.clock.advance(1)
            rig.partition.flush_if_due()
            await rig.flusher.settled()
            assert rig.partition.log.synced_offset == 1

    run(story())


def test_batch_is_stamped_with_its_offset_and_the_leader_epoch(tmp_path: Path) -> None:
    async def story() -> None:
        async with open_rig(tmp_path, flush_always=False) as rig:
            append(rig.partition, batch(b"a", b"b"))
            await committed(rig.partition, batch(b"c"))
            records = rig.partition.read(Offset(2), 1000, at_least_one=True).records
            header = read_header(records)
            assert (header.base_offset, header.leader_epoch) == (2, 1)
            assert [record.offset for record in decode_batch(records)] == [2]

    run(story())


def test_append_time_topic_stamps_the_broker_time(tmp_path: Path) -> None:
    async def story() -> None:
        config = TopicConfig(message_timestamp_type="LogAppendTime")
        async with open_rig(tmp_path, config, flush_always=False) as rig:
            rig.clock.advance(5000)
            appended = await committed(rig.partition, batch(b"a"))
            assert appended.append_time_ms == START_MS + 5000
            records = rig.partition.read(Offset(0), 1000, at_least_one=True).records
            assert [r.timestamp for r in decode_batch(records)] == [START_MS + 5000]

    run(story())


def test_retry_of_an_idempotent_batch_is_acknowledged_and_not_appended(tmp_path: Path) -> None:
    async def story() -> None:
        async with open_rig(tmp_path, flush_always=False) as rig:
            append(rig.partition, batch(b"a", producer=5, sequence=0))
            append(rig.partition, batch(b"b", producer=5, sequence=1))
            again = append(rig.partition, batch(b"a", producer=5, sequence=0))
            assert (again.base_offset, again.end_offset) == (0, 1)
            assert rig.partition.log_end_offset == 2

    run(story())


def test_busy_leader_whose_lease_is_over_accepts_batches_and_reports_no_gap(
    tmp_path: Path,
) -> None:
    """A majority decides whether it still leads; its own log may be the one that lacks a batch."""

    async def story() -> None:
        outbox, members = Nowhere(), (ME, PEER, OTHER)
        async with open_rig(tmp_path, members=members, flush_always=False, outbox=outbox) as rig:
            partition = rig.partition
            append(partition, batch(b"a", producer=5, sequence=0))
            with pytest.raises(OutOfOrderSequence):
                append(partition, batch(b"?", producer=5, sequence=7))
            outbox.lease_ends_s = 0.0
            assert append(partition, batch(b"b", producer=5, sequence=1)).base_offset == 1
            with pytest.raises(NotLeaderOrFollower):
                append(partition, batch(b"?", producer=5, sequence=7))
            with pytest.raises(NotLeaderOrFollower):
                partition.check_serves()

    run(story())


def test_retry_whose_first_append_is_not_synced_waits_for_it(tmp_path: Path) -> None:
    async def story() -> None:
        async with open_rig(tmp_path) as rig:
            rig.calls.gate.clear()
            append(rig.partition, batch(b"a", producer=5, sequence=0))
            again = append(rig.partition, batch(b"a", producer=5, sequence=0))
            commit = rig.partition.commit(again, all_replicas=True)
            assert commit is not None
            assert not commit.done()
            rig.calls.gate.set()
            await commit

    run(story())


def test_producers_are_known_after_reopening_with_and_without_a_snapshot(tmp_path: Path) -> None:
    async def story() -> None:
        async with open_rig(tmp_path, flush_always=False) as rig:
            append(rig.partition, batch(b"a", producer=5, sequence=0))
            rig.partition.save_producers()
            append(rig.partition, batch(b"b", producer=5, sequence=1))
            expected = rig.partition.producers.snapshot()
        async with open_rig(tmp_path, flush_always=False, clean=False) as rig:
            assert rig.partition.producers.snapshot() == expected
            assert append(rig.partition, batch(b"b", producer=5, sequence=1)).base_offset == 1

    run(story())


def test_inspected_appends_keep_their_order(tmp_path: Path) -> None:
    async def story() -> None:
        config = TopicConfig(cleanup_policy=("compact",))
        async with open_rig(tmp_path, config, flush_always=False) as rig:
            tasks = [
                rig.partition.append(
                    batch(*[b"%d" % number] * (100 if number % 2 else 1)), all_replicas=True
                )
                for number in range(10)
            ]
            offsets = [(await task).base_offset for task in tasks if isinstance(task, asyncio.Task)]
            assert offsets == sorted(offsets)
            assert len(offsets) == 10

    run(story())


def test_too_few_replicas_for_min_insync_refuse_acks_all_only(tmp_path: Path) -> None:
    async def story() -> None:
        config = TopicConfig(min_insync_replicas=2)
        async with open_rig(tmp_path, config, flush_always=False) as rig:
            with pytest.raises(NotEnoughReplicas):
                append(rig.partition, batch(b"a"))
            assert append(rig.partition, batch(b"a"), all_replicas=False).base_offset == 0

    run(story())


def test_other_leader_epoch_is_refused(tmp_path: Path) -> None:
    async def story() -> None:
        async with open_rig(tmp_path) as rig:
            rig.partition.check_epoch(-1)
            rig.partition.check_epoch(1)
            with pytest.raises(FencedLeaderEpoch):
                rig.partition.check_epoch(0)
            with pytest.raises(UnknownLeaderEpoch):
                rig.partition.check_epoch(2)

    run(story())


def test_deleted_prefix_is_out_of_range_and_stays_deleted(tmp_path: Path) -> None:
    async def story() -> None:
        async with open_rig(tmp_path, flush_always=False) as rig:
            await committed(rig.partition, batch(b"a", b"b", b"c"))
            assert await rig.partition.delete_before(Offset(2)) == 2
            assert await rig.partition.delete_before(Offset(1)) == 2
            with pytest.raises(OffsetOutOfRange):
                rig.partition.read(Offset(1), 1000, at_least_one=True)
            with pytest.raises(OffsetOutOfRange):
                await rig.partition.delete_before(Offset(4))

    run(story())


def test_time_lookups_see_committed_records_only(tmp_path: Path) -> None:
    async def story() -> None:
        async with open_rig(tmp_path) as rig:
            rig.calls.gate.clear()
            appended = append(rig.partition, batch(b"a"))
            assert rig.partition.find_by_timestamp(TimestampMs(0)) is None
            assert rig.partition.max_timestamp() is None
            commit = rig.partition.commit(appended, all_replicas=True)
            rig.calls.gate.set()
            assert commit is not None
            await commit
            found = rig.partition.find_by_timestamp(TimestampMs(0))
            assert found is not None
            assert found.offset == 0

    run(story())


def test_watcher_wakes_when_enough_bytes_are_committed_over_all_its_partitions(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        async with (
            open_rig(tmp_path / "1", flush_always=False) as one,
            open_rig(tmp_path / "2", flush_always=False) as two,
        ):
            size = len(batch(b"a"))
            watcher = BytesAwaited(2 * size, loop)
            one.partition.watch(watcher)
            two.partition.watch(watcher)
            await committed(one.partition, batch(b"a"))
            assert not watcher.done.done()
            await committed(two.partition, batch(b"a"))
            assert watcher.done.done()

    run(story())


def test_closing_wakes_readers_and_fails_writers(tmp_path: Path) -> None:
    async def story() -> None:
        async with open_rig(tmp_path) as rig:
            watcher = BytesAwaited(1, asyncio.get_running_loop())
            rig.partition.watch(watcher)
            rig.calls.gate.clear()
            commit = rig.partition.commit(append(rig.partition, batch(b"a")), all_replicas=True)
            rig.partition.close()
            assert watcher.done.done()
            assert commit is not None
            with pytest.raises(StorageFailed):
                await commit
            with pytest.raises(UnknownTopicOrPartition):
                append(rig.partition, batch(b"b"))

    run(story())


def test_batch_after_a_damaged_header_is_served_and_the_damaged_one_is_not(tmp_path: Path) -> None:
    """A scan from the sparse index cannot pass a header whose length is wrong."""

    async def story() -> None:
        async with open_rig(tmp_path, flush_always=False) as rig:
            partition = rig.partition
            sizes = [len(batch(value)) for value in (b"a", b"b", b"c")]
            for value in (b"a", b"b", b"c"):
                append(partition, batch(value))
            segment = partition.log.segment(Offset(0))
            segment._recent = None
            with open(segment.file.path, "r+b") as file:
                file.seek(sizes[0] + 8)
                file.write(b"\x7f")
            with pytest.raises(CorruptMessage):
                partition.read(Offset(1), 10_000, at_least_one=True)
            behind = partition.read(Offset(2), 10_000, at_least_one=True)
            assert len(behind.records) == sizes[2]
            assert read_header(behind.records).base_offset == 2

    run(story())


@pytest.mark.parametrize("bit", range(17 * 8))
def test_batch_with_a_flipped_bit_that_no_checksum_covers_is_not_served(
    tmp_path: Path, bit: int
) -> None:
    """Offset, length, leader epoch and format of the second of five batches of two records."""

    async def story() -> None:
        async with open_rig(tmp_path, flush_always=False) as rig:
            partition = rig.partition
            for number in range(5):
                append(partition, batch(b"%d" % number, b"x"))
            size = len(batch(b"0", b"x"))
            segment = partition.log.segment(Offset(0))
            flip(segment.file.path, size + bit // 8, bit % 8)
            for offset in range(10):
                for is_remembered in (True, False):
                    if not is_remembered:
                        segment._recent = None
                    if offset in (2, 3):
                        with pytest.raises(CorruptMessage):
                            partition.read(Offset(offset), 10_000, at_least_one=True)
                        continue
                    found = partition.read(Offset(offset), 10_000, at_least_one=True)
                    bases = [header.base_offset for _, header in iter_batches(found.records)]
                    first = offset // 2 * 2
                    assert bases == list(range(first, 2 if offset < 2 else 10, 2))

    run(story())


@pytest.mark.parametrize("bit", [0, 7, 37, 56, 63, 72, 90, 130])
def test_producers_after_a_damaged_header_are_known_after_a_restart(
    tmp_path: Path, bit: int
) -> None:
    """Otherwise their retries would be appended twice (found by `fault run single-flipped-bit`)."""

    async def story() -> None:
        async with open_rig(tmp_path, flush_always=False) as rig:
            for number in range(4):
                append(rig.partition, batch(b"v", producer=number, sequence=0))
            log = rig.partition.log
            log.prune_snapshots(keep=0)
            flip(log.segment(Offset(0)).file.path, len(batch(b"v")) + bit // 8, bit % 8)
            known = load_producers(rig.partition.replica.entries)
            assert {producer_id for producer_id, _ in known.items()} >= {0, 2, 3}
            with pytest.raises(CorruptMessage):
                read_producers(rig.partition.replica.entries)

    run(story())


def flip(path: str, position: int, bit: int) -> None:
    with open(path, "r+b") as file:
        file.seek(position)
        (byte,) = file.read(1)
        file.seek(position)
        file.write(bytes([byte ^ 1 << bit]))


def test_gap_after_a_change_of_leaders_makes_the_producer_retry_its_first_batch(
    tmp_path: Path,
) -> None:
    """The batch that the last leader refused is missing. OUT_OF_ORDER_SEQUENCE would make the client
    send everything again, including what was appended (found by `fault run rolling-restart`)."""

    def of_producer(sequence: int) -> memoryview:
        return batch(b"v", producer=7, sequence=sequence)

    async def story() -> None:
        async with open_rig(tmp_path, flush_always=False) as first:
            append(first.partition, of_producer(0))
        async with open_rig(tmp_path, flush_always=False) as second:
            partition = second.partition
            with pytest.raises(NotLeaderOrFollower):
                append(partition, of_producer(2))
            assert append(partition, of_producer(0)).base_offset == 0
            assert append(partition, of_producer(1)).base_offset == 1
            with pytest.raises(OutOfOrderSequence):
                append(partition, of_producer(3))

    run(story())


def test_batches_sent_after_a_refused_one_are_not_a_gap(tmp_path: Path) -> None:
    """A leader that hands over refuses a batch while the next ones are in flight. On
    OUT_OF_ORDER_SEQUENCE librdkafka sends everything again in a new epoch (found by `fault run
    rolling-restart`)."""

    async def story() -> None:
        async with open_rig(tmp_path, members=(ME, PEER, OTHER), flush_always=False) as rig:
            partition = rig.partition
            assert append(partition, batch(b"v", producer=7, sequence=0)).base_offset == 0
            with pytest.raises(OutOfOrderSequence):
                append(partition, batch(b"v", producer=7, sequence=2))
            partition.replica.transfer_leadership(PEER)
            for producer, sequence in ((7, 1), (7, 2), (7, 3), (8, 0), (8, 1)):
                with pytest.raises(NotLeaderOrFollower):
                    append(partition, batch(b"v", producer=producer, sequence=sequence))
            assert append(partition, batch(b"v", producer=7, sequence=0)).base_offset == 0
            rig.clock.advance(int(PIPELINE_SECONDS * 1000))
            with pytest.raises(OutOfOrderSequence):
                append(partition, batch(b"v", producer=7, sequence=2))

    run(story())
