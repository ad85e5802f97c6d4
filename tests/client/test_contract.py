"""The contract of the port, for both logs: over librdkafka with a real broker, and in memory."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable

import pytest

from kafkaesque.client.ports import (
    Assignment,
    CommitPoint,
    DeliveryFailed,
    Log,
    LogError,
    LogReader,
    LogWriter,
    Received,
    Record,
    Span,
    Start,
    Subscription,
    TopicUnknown,
    TransactionsUnsupported,
    WriterOptions,
)
from kafkaesque.client.reading import last_records_stretch, read_stretch
from kafkaesque.events.topics import TopicSpec
from kafkaesque.model.ids import Offset, PartitionIndex, TimestampMs, TopicPartition

MakeLog = Callable[[], Log]


async def new_topic(log: Log, partitions: int = 1) -> str:
    spec = TopicSpec(f"t-{uuid.uuid4().hex}", partitions, key="any", doc="for a test")
    assert await log.admin.ensure_topics([spec]) == [spec.name]
    return spec.name


async def read_count(reader: LogReader, count: int) -> list[Received]:
    found: list[Received] = []
    async with asyncio.timeout(20):
        while len(found) < count:
            found += await reader.read(wait_s=0.2)
    return found


def place(topic: str, partition: int = 0) -> TopicPartition:
    return TopicPartition(topic, PartitionIndex(partition))


def test_ensure_topics_does_not_change_existing_topics(make_log: MakeLog) -> None:
    async def story() -> None:
        log = make_log()
        name = await new_topic(log, 3)
        assert await log.admin.ensure_topics([TopicSpec(name, 9, "k", "d")]) == []
        assert len(await log.admin.spans(name)) == 3

    asyncio.run(story())


def test_sent_records_are_read_back_as_they_were(make_log: MakeLog) -> None:
    async def story() -> None:
        log = make_log()
        topic = await new_topic(log)
        writer = await log.open_writer()
        offsets = await writer.send(
            [
                Record(topic, b"k", b"v", headers=(("h", b"1"), ("n", None))),
                Record(topic, None, None, timestamp_ms=TimestampMs(1_790_000_000_000)),
            ]
        )
        assert offsets == [0, 1]
        await writer.close()
        reader = await log.open_reader(Assignment({place(topic): Offset(0)}))
        first, second = await read_count(reader, 2)
        assert (first.key, first.value, first.headers) == (b"k", b"v", (("h", b"1"), ("n", None)))
        assert (second.key, second.value, second.timestamp_ms) == (None, None, 1_790_000_000_000)
        assert await reader.positions() == {place(topic): 2}
        await reader.close()

    asyncio.run(story())


def test_send_of_more_than_the_buffer_holds_waits_and_keeps_order(make_log: MakeLog) -> None:
    async def story() -> None:
        log = make_log()
        topic = await new_topic(log)
        writer = await log.open_writer(WriterOptions(buffered_records_max=50))
        offsets = await writer.send(Record(topic, b"k", b"%d" % n) for n in range(1000))
        assert offsets == list(range(1000))
        await writer.close()
        reader = await log.open_reader(Assignment({place(topic): Offset(0)}))
        assert [record.value for record in await read_count(reader, 1000)] == [
            b"%d" % n for n in range(1000)
        ]
        await reader.close()

    asyncio.run(story())


def test_several_tasks_may_send_at_once(make_log: MakeLog) -> None:
    async def story() -> None:
        log = make_log()
        topic = await new_topic(log)
        writer = await log.open_writer(WriterOptions(buffered_records_max=10))
        batches = [[Record(topic, b"%d" % task, b"%d" % n) for n in range(30)] for task in range(5)]
        answers = await asyncio.gather(*(writer.send(batch) for batch in batches))
        assert sorted(offset for offsets in answers for offset in offsets) == list(range(150))
        assert all(list(offsets) == sorted(offsets) for offsets in answers)
        await writer.close()

    asyncio.run(story())


def test_record_for_a_missing_partition_fails(make_log: MakeLog) -> None:
    async def story() -> None:
        log = make_log()
        topic = await new_topic(log)
        writer = await log.open_writer()
        with pytest.raises(DeliveryFailed):
            await writer.send([Record(topic, b"k", b"v", partition=PartitionIndex(5))])
        assert await writer.send([Record(topic, b"k", b"v")]) == [0]
        await writer.close()

    asyncio.run(story())


def test_group_continues_after_its_commit(make_log: MakeLog) -> None:
    async def story() -> None:
        log = make_log()
        topic = await new_topic(log)
        writer = await log.open_writer()
        await writer.send(Record(topic, b"k", b"%d" % n) for n in range(10))
        what = Subscription([topic], group=f"g-{topic}")
        reader = await log.open_reader(what)
        assert len(await read_count(reader, 10)) == 10
        await reader.commit()
        await reader.close()
        await writer.send([Record(topic, b"k", b"after")])
        reader = await log.open_reader(what)
        assert [record.value for record in await read_count(reader, 1)] == [b"after"]
        await reader.close()
        await writer.close()

    asyncio.run(story())


def test_group_that_starts_at_the_end_sees_only_later_records(make_log: MakeLog) -> None:
    async def story() -> None:
        log = make_log()
        topic = await new_topic(log)
        writer = await log.open_writer()
        await writer.send([Record(topic, b"k", b"before")])
        reader = await log.open_reader(Subscription([topic], f"g-{topic}", Start.END))
        found: list[Received] = []
        async with asyncio.timeout(20):
            while not found:
                # Sent repeatedly: joining a group on a real broker takes a moment.
                await writer.send([Record(topic, b"k", b"after")])
                found += await reader.read(wait_s=0.2)
        assert {record.value for record in found} == {b"after"}
        await reader.close()
        await writer.close()

    asyncio.run(story())


def test_reader_without_a_group_cannot_commit(make_log: MakeLog) -> None:
    async def story() -> None:
        log = make_log()
        topic = await new_topic(log)
        reader = await log.open_reader(Assignment({place(topic): Offset(0)}))
        with pytest.raises(LogError):
            await reader.commit()
        await reader.close()
        await reader.close()

    asyncio.run(story())


def test_unknown_topic_has_no_spans(make_log: MakeLog) -> None:
    async def story() -> None:
        with pytest.raises(TopicUnknown):
            await make_log().admin.spans("there-is-none")

    asyncio.run(story())


def test_writer_without_transactional_id_has_no_transactions(make_log: MakeLog) -> None:
    async def story() -> None:
        writer = await make_log().open_writer()
        assert not writer.transactional
        with pytest.raises(TransactionsUnsupported):
            writer.transaction()
        await writer.close()
        await writer.close()

    asyncio.run(story())


def test_range_is_read_to_its_end(make_log: MakeLog) -> None:
    async def story() -> None:
        log = make_log()
        topic = await new_topic(log, 3)
        writer = await log.open_writer()
        await writer.send(Record(topic, b"%d" % n, b"%d" % n) for n in range(300))
        await writer.close()
        spans = await log.admin.spans(topic)
        assert sum(span.end for span in spans.values()) == 300
        read = [record async for records in read_stretch(log, spans) for record in records]
        assert sorted(int(record.value or b"") for record in read) == list(range(300))

    asyncio.run(story())


def test_range_of_an_empty_topic_is_empty(make_log: MakeLog) -> None:
    async def story() -> None:
        log = make_log()
        topic = await new_topic(log)
        spans = await log.admin.spans(topic)
        assert [records async for records in read_stretch(log, spans)] == []

    asyncio.run(story())


def test_last_records_of_one_partition_are_exactly_those(make_log: MakeLog) -> None:
    async def story() -> None:
        log = make_log()
        topic = await new_topic(log)
        writer = await log.open_writer()
        await writer.send(Record(topic, b"k", b"v") for _ in range(30))
        await writer.close()
        stretch = await last_records_stretch(log, topic, 10)
        assert stretch == {place(topic): Span(Offset(20), Offset(30))}

    asyncio.run(story())


# -- rebalance listeners and changes of what is read -----------------------------------------------


class RecordingListener:
    """Records the events it gets; seeks and commits if it is asked to."""

    def __init__(self) -> None:
        self.events: list[tuple[str, frozenset[TopicPartition]]] = []
        self.reader: LogReader | None = None
        self.begin_at: Offset | None = None
        self.commit_at: CommitPoint | None = None

    async def assigned(self, places: frozenset[TopicPartition]) -> None:
        self.events.append(("assigned", places))
        if self.begin_at is not None and self.reader is not None:
            for each in places:
                await self.reader.seek(each, self.begin_at)

    async def revoked(self, places: frozenset[TopicPartition]) -> None:
        self.events.append(("revoked", places))
        if self.commit_at is not None and self.reader is not None:
            await self.reader.commit(dict.fromkeys(places, self.commit_at))

    async def lost(self, places: frozenset[TopicPartition]) -> None:
        self.events.append(("lost", places))

    def names(self) -> list[str]:
        return [name for name, _ in self.events]


async def numbers(log: Log, topic: str, count: int, partition: int = 0) -> None:
    writer = await log.open_writer()
    await writer.send(
        Record(topic, None, b"%d" % n, partition=PartitionIndex(partition)) for n in range(count)
    )
    await writer.close()


def test_listener_is_called_before_the_first_record_and_at_revocation(
    make_log: MakeLog,
) -> None:
    async def story() -> None:
        log = make_log()
        topic = await new_topic(log, 2)
        await numbers(log, topic, 3)
        listener = RecordingListener()
        reader = await log.open_reader(Subscription([topic], f"g-{topic}", listener=listener))
        assert len(await read_count(reader, 3)) == 3
        both = frozenset({place(topic, 0), place(topic, 1)})
        assert listener.events == [("assigned", both)]
        assert reader.assignment() == both
        await reader.close()
        assert listener.events == [("assigned", both), ("revoked", both)]

    asyncio.run(story())


def test_listener_may_seek_assigned_partitions(make_log: MakeLog) -> None:
    async def story() -> None:
        log = make_log()
        topic = await new_topic(log)
        await numbers(log, topic, 10)
        listener = RecordingListener()
        listener.begin_at = Offset(7)
        listener.reader = reader = await log.open_reader(
            Subscription([topic], f"g-{topic}", listener=listener)
        )
        assert [record.value for record in await read_count(reader, 3)] == [b"7", b"8", b"9"]
        await reader.close()

    asyncio.run(story())


def test_commit_during_revocation_counts_and_keeps_its_metadata(make_log: MakeLog) -> None:
    async def story() -> None:
        log = make_log()
        topic = await new_topic(log)
        await numbers(log, topic, 10)
        listener = RecordingListener()
        listener.commit_at = point = CommitPoint(Offset(4), "so far")
        what = Subscription([topic], f"g-{topic}", listener=listener)
        listener.reader = reader = await log.open_reader(what)
        await read_count(reader, 10)
        assert await reader.committed([place(topic)]) == {}
        await reader.close()
        listener.commit_at = None
        after = await log.open_reader(what)
        assert [record.offset for record in await read_count(after, 6)] == [4, 5, 6, 7, 8, 9]
        assert await after.committed([place(topic)]) == {place(topic): point}
        await after.close()

    asyncio.run(story())


def test_partitions_move_to_a_new_member_only_after_revocation(make_log: MakeLog) -> None:
    async def story() -> None:
        log = make_log()
        topic = await new_topic(log, 2)
        listeners = [RecordingListener(), RecordingListener()]
        group = f"g-{topic}"
        readers = [await log.open_reader(Subscription([topic], group, listener=listeners[0]))]
        async with asyncio.timeout(30):
            while not listeners[0].events:
                await readers[0].read(wait_s=0.1)
            readers.append(
                await log.open_reader(Subscription([topic], group, listener=listeners[1]))
            )
            while not (len(readers[0].assignment()) == 1 == len(readers[1].assignment())):
                for reader in readers:
                    await reader.read(wait_s=0.1)
        assert readers[0].assignment().isdisjoint(readers[1].assignment())
        assert listeners[0].names()[:2] == ["assigned", "revoked"]
        for reader in readers:
            await reader.close()

    asyncio.run(story())


def test_paused_partitions_return_nothing_until_resumed(make_log: MakeLog) -> None:
    async def story() -> None:
        log = make_log()
        topic = await new_topic(log, 2)
        await numbers(log, topic, 3, 0)
        await numbers(log, topic, 3, 1)
        reader = await log.open_reader(
            Assignment({place(topic, 0): Offset(0), place(topic, 1): Offset(0)})
        )
        await reader.pause([place(topic, 0)])
        assert {record.partition for record in await read_count(reader, 3)} == {1}
        await reader.resume([place(topic, 0)])
        assert {record.partition for record in await read_count(reader, 3)} == {0}
        await reader.close()

    asyncio.run(story())


def test_seek_reads_again(make_log: MakeLog) -> None:
    async def story() -> None:
        log = make_log()
        topic = await new_topic(log)
        await numbers(log, topic, 5)
        reader = await log.open_reader(Assignment({place(topic): Offset(0)}))
        await read_count(reader, 5)
        await reader.seek(place(topic), Offset(3))
        assert [record.offset for record in await read_count(reader, 2)] == [3, 4]
        await reader.close()

    asyncio.run(story())


def test_added_partitions_are_read_and_dropped_ones_are_not(make_log: MakeLog) -> None:
    async def story() -> None:
        log = make_log()
        topic = await new_topic(log, 3)
        for partition in range(3):
            await numbers(log, topic, 4, partition)
        reader = await log.open_reader(Assignment({}))
        assert await reader.read(wait_s=0) == []
        await reader.add({place(topic, 0): Offset(2), place(topic, 1): Offset(0)})
        assert len(await read_count(reader, 6)) == 6
        await reader.drop([place(topic, 0)])
        assert reader.assignment() == {place(topic, 1)}
        await reader.add({place(topic, 2): Offset(3)})
        assert [(record.partition, record.offset) for record in await read_count(reader, 1)] == [
            (2, 3)
        ]
        assert set(await reader.positions()) == {place(topic, 1), place(topic, 2)}
        await reader.close()

    asyncio.run(story())


def test_cancelled_read_loses_no_record(make_log: MakeLog) -> None:
    async def story() -> None:
        log = make_log()
        topic = await new_topic(log)
        reader = await log.open_reader(Assignment({place(topic): Offset(0)}))
        reading = asyncio.create_task(reader.read(wait_s=5))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        await numbers(log, topic, 3)
        assert len(await read_count(reader, 3)) == 3
        await reader.close()

    asyncio.run(story())


def test_topic_ids_and_partition_counts(make_log: MakeLog) -> None:
    async def story() -> None:
        log = make_log()
        first, second = await new_topic(log, 2), await new_topic(log, 5)
        ids = await log.admin.topic_ids([first, second])
        assert len(set(ids.values())) == 2
        assert ids == await log.admin.topic_ids([first, second])
        assert await log.admin.partition_count(second) == 5
        with pytest.raises(TopicUnknown):
            await log.admin.topic_ids(["there-is-none"])
        with pytest.raises(TopicUnknown):
            await log.admin.partition_count("there-is-none")

    asyncio.run(story())


def test_points_are_committed_with_a_transaction(make_log: MakeLog) -> None:
    async def story() -> None:
        log = make_log()
        topic = await new_topic(log)
        await numbers(log, topic, 10)
        what = Subscription([topic], f"g-{topic}")
        reader = await log.open_reader(what)
        await read_count(reader, 10)
        writer = await log.open_writer(WriterOptions(transactional_id=f"w-{topic}"))
        point = CommitPoint(Offset(6), "with it")
        async with writer.transaction():
            await writer.send([Record(topic, b"k", b"v")])
            await writer.send_offsets(reader, {place(topic): point})
        assert await reader.committed([place(topic)]) == {place(topic): point}
        await reader.close()
        await writer.close()

    asyncio.run(story())


async def fail_in_transaction(writer: LogWriter, work: Awaitable[object]) -> None:
    async with writer.transaction():
        await work
        raise ZeroDivisionError


def test_records_have_offsets_before_their_transaction_ends(make_log: MakeLog) -> None:
    async def story() -> None:
        log = make_log()
        topic = await new_topic(log)
        writer = await log.open_writer(WriterOptions(transactional_id=f"w-{topic}"))
        async with writer.transaction():
            assert await writer.send([Record(topic, b"k", b"1"), Record(topic, b"k", b"2")]) == [
                0,
                1,
            ]
            assert await writer.send([Record(topic, b"k", b"3")]) == [2]
            assert (await log.admin.spans(topic))[place(topic)].end == 0
        # The marker that ends a transaction takes an offset, committed or not.
        assert (await log.admin.spans(topic))[place(topic)].end == 4
        with pytest.raises(ZeroDivisionError):
            await fail_in_transaction(writer, writer.send([Record(topic, b"k", b"taken back")]))
        async with writer.transaction():
            assert await writer.send([Record(topic, b"k", b"4")]) == [6]
        await writer.close()
        reader = await log.open_reader(Assignment({place(topic): Offset(0)}))
        records = await read_count(reader, 4)
        assert [(record.offset, record.value) for record in records] == [
            (0, b"1"),
            (1, b"2"),
            (2, b"3"),
            (6, b"4"),
        ]
        await reader.close()

    asyncio.run(story())
