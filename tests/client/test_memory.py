"""The in-memory log: transactions, fencing, groups, injected failures."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest

from kafkaesque.client.memory import MemoryLog
from kafkaesque.client.memory_reader import MemoryReader
from kafkaesque.client.ports import (
    Assignment,
    DeliveryFailed,
    LogError,
    LogWriter,
    OffsetGone,
    Record,
    Subscription,
    TransactionsUnsupported,
    WriterFenced,
    WriterOptions,
)
from kafkaesque.events.topics import TopicSpec
from kafkaesque.model.ids import Offset, PartitionIndex, TopicPartition

TOPIC = TopicSpec("t", 2, "k", "d")
TRANSACTIONAL = WriterOptions(transactional_id="w")


async def fail_in_transaction(writer: LogWriter, work: Awaitable[object]) -> None:
    async with writer.transaction():
        await work
        raise ZeroDivisionError


def test_transaction_is_visible_whole_after_its_commit() -> None:
    async def story() -> None:
        log = MemoryLog()
        await log.ensure_topics([TOPIC])
        writer = await log.open_writer(TRANSACTIONAL)
        async with writer.transaction():
            await writer.send([Record("t", b"a", b"1")])
            assert log.records("t") == []
            await writer.send([Record("t", b"b", b"2")])
        assert len(log.records("t")) == 2

    asyncio.run(story())


def test_transaction_whose_block_raises_is_aborted() -> None:
    async def story() -> None:
        log = MemoryLog()
        await log.ensure_topics([TOPIC])
        writer = await log.open_writer(TRANSACTIONAL)
        with pytest.raises(ZeroDivisionError):
            await fail_in_transaction(writer, writer.send([Record("t", b"a", b"1")]))
        assert log.records("t") == []
        with pytest.raises(LogError):
            await writer.send([Record("t", b"a", b"1")])

    asyncio.run(story())


def test_records_after_an_open_transaction_wait_for_its_end() -> None:
    async def story() -> None:
        log = MemoryLog()
        await log.ensure_topics([TopicSpec("t", 1, "k", "d")])
        plain, writer = await log.open_writer(), await log.open_writer(TRANSACTIONAL)
        reader = await log.open_reader(
            Assignment({TopicPartition("t", PartitionIndex(0)): Offset(0)})
        )
        async with writer.transaction():
            await writer.send([Record("t", b"a", b"1")])
            assert await plain.send([Record("t", b"a", b"2")]) == [1]
            assert await reader.read(wait_s=0) == []
        assert [record.value for record in await reader.read()] == [b"1", b"2"]

    asyncio.run(story())


def test_open_transaction_of_a_fenced_writer_is_aborted_at_once() -> None:
    async def story() -> None:
        log = MemoryLog()
        await log.ensure_topics([TopicSpec("t", 1, "k", "d")])
        old, plain = await log.open_writer(TRANSACTIONAL), await log.open_writer()
        begun = old.transaction()
        await begun.__aenter__()
        await old.send([Record("t", b"a", b"lost")])
        await log.open_writer(TRANSACTIONAL)
        await plain.send([Record("t", b"a", b"1")])
        assert [(record.offset, record.value) for record in log.records("t")] == [(2, b"1")]

    asyncio.run(story())


def test_new_writer_of_the_same_id_fences_the_old() -> None:
    async def story() -> None:
        log = MemoryLog()
        await log.ensure_topics([TOPIC])
        old = await log.open_writer(TRANSACTIONAL)

        async def overtaken() -> None:
            async with old.transaction():
                await old.send([Record("t", b"a", b"1")])
                await log.open_writer(TRANSACTIONAL)

        with pytest.raises(WriterFenced):
            await overtaken()
        assert log.records("t") == []

    asyncio.run(story())


def test_offsets_are_committed_with_the_transaction_or_not_at_all() -> None:
    async def story() -> None:
        log = MemoryLog()
        await log.ensure_topics([TOPIC])
        plain = await log.open_writer()
        await plain.send([Record("t", b"a", b"1")])
        what = Subscription(["t"], "g")
        reader = await log.open_reader(what)
        writer = await log.open_writer(TRANSACTIONAL)
        assert len(await reader.read()) == 1
        with pytest.raises(ZeroDivisionError):
            await fail_in_transaction(writer, writer.send_offsets(reader))
        await reader.close()
        reader = await log.open_reader(what)
        assert len(await reader.read()) == 1
        async with writer.transaction():
            await writer.send_offsets(reader)
        await reader.close()
        reader = await log.open_reader(what)
        assert len(await reader.read(wait_s=0)) == 0

    asyncio.run(story())


def test_members_of_a_group_share_the_partitions() -> None:
    async def story() -> None:
        log = MemoryLog()
        await log.ensure_topics([TOPIC])
        readers = [await log.open_reader(Subscription(["t"], "g")) for _ in range(2)]
        writer = await log.open_writer()
        await writer.send(Record("t", b"%d" % n, b"v") for n in range(100))
        shares = [await reader.read() for reader in readers]
        assert all(shares)
        assert sum(map(len, shares)) == 100

    asyncio.run(story())


def test_member_that_the_group_removed_has_lost_its_partitions() -> None:
    async def story() -> None:
        log = MemoryLog()
        await log.ensure_topics([TOPIC])
        events: list[str] = []

        class Listener:
            async def assigned(self, places: frozenset[TopicPartition]) -> None:
                events.append(f"assigned {len(places)}")

            async def revoked(self, places: frozenset[TopicPartition]) -> None:
                events.append(f"revoked {len(places)}")

            async def lost(self, places: frozenset[TopicPartition]) -> None:
                events.append(f"lost {len(places)}")

        reader = await log.open_reader(Subscription(["t"], "g", listener=Listener()))
        await reader.read(wait_s=0)
        assert isinstance(reader, MemoryReader)
        reader.expel()
        with pytest.raises(LogError):
            await reader.commit()
        await reader.read(wait_s=0)
        assert events == ["assigned 2", "lost 2", "assigned 2"]

    asyncio.run(story())


def test_member_whose_listener_raises_at_close_leaves_its_group() -> None:
    async def story() -> None:
        class FailingListener:
            async def assigned(self, places: frozenset[TopicPartition]) -> None: ...

            async def revoked(self, places: frozenset[TopicPartition]) -> None:
                raise LogError("not now")

            async def lost(self, places: frozenset[TopicPartition]) -> None: ...

        log = MemoryLog()
        await log.ensure_topics([TOPIC])
        first = await log.open_reader(Subscription([TOPIC.name], "g", listener=FailingListener()))
        await first.read(wait_s=0)
        with pytest.raises(LogError, match="not now"):
            await first.close()
        second = await log.open_reader(Subscription([TOPIC.name], "g"))
        await second.read(wait_s=0)
        assert len(second.assignment()) == TOPIC.partitions

    asyncio.run(story())


def test_strict_reader_below_the_log_start_fails_and_another_continues_from_there() -> None:
    async def story() -> None:
        log = MemoryLog()
        await log.ensure_topics([TOPIC])
        writer = await log.open_writer()
        first = TopicPartition("t", PartitionIndex(0))
        await writer.send(Record("t", None, b"v", partition=first.partition) for _ in range(5))
        log.trim(first, Offset(3))
        assert (await log.spans("t"))[first].start == 3
        lenient = await log.open_reader(Assignment({first: Offset(1)}))
        assert [record.offset for record in await lenient.read()] == [3, 4]
        strict = await log.open_reader(Assignment({first: Offset(1)}, strict=True))
        with pytest.raises(OffsetGone):
            await strict.read()

    asyncio.run(story())


def test_log_without_transactions_refuses_transactional_writers() -> None:
    async def story() -> None:
        with pytest.raises(TransactionsUnsupported):
            await MemoryLog(transactions=False).open_writer(TRANSACTIONAL)

    asyncio.run(story())


def test_injected_failure_fails_every_send() -> None:
    async def story() -> None:
        log = MemoryLog()
        await log.ensure_topics([TOPIC])
        writer = await log.open_writer()
        log.failure = DeliveryFailed("on cue")
        with pytest.raises(DeliveryFailed):
            await writer.send([Record("t", b"a", b"1")])
        log.failure = None
        assert await writer.send([Record("t", b"a", b"1")]) == [0]

    asyncio.run(story())
