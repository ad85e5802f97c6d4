"""Failures that only the log over librdkafka can have."""

from __future__ import annotations

import asyncio
import socket
import uuid
from collections.abc import Sequence
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient

from kafkaesque.client.kafka import KafkaLog
from kafkaesque.client.ports import (
    Assignment,
    DeliveryFailed,
    LogError,
    LogReader,
    OffsetGone,
    Received,
    Record,
    Span,
    Subscription,
    TransactionsUnsupported,
    WriterOptions,
)
from kafkaesque.events.topics import SOCIAL_TOPICS, TopicSpec
from kafkaesque.model.ids import Offset, PartitionIndex, TopicPartition
from kafkaesque.testing import Broker


def unused_address() -> str:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{taken.getsockname()[1]}"


async def first_records(reader: LogReader) -> Sequence[Received]:
    async with asyncio.timeout(30):
        while not (found := await reader.read(wait_s=0.1)):
            pass
        return found


def test_writer_for_a_broker_without_transactions_is_refused(
    broker: Broker,
) -> None:
    async def story() -> None:
        log = KafkaLog(broker.bootstrap_servers)
        try:
            writer = await log.open_writer(WriterOptions(transactional_id=uuid.uuid4().hex))
        except TransactionsUnsupported:
            return
        # This broker has transactions, so they must work.
        spec = TopicSpec(f"t-{uuid.uuid4().hex}", 1, "k", "d")
        await log.admin.ensure_topics([spec])
        async with writer.transaction():
            assert await writer.send([Record(spec.name, b"k", b"v")]) == [0]
        await writer.close()

    asyncio.run(story())


def test_records_for_an_unreachable_broker_fail_after_the_delivery_timeout() -> None:
    async def story() -> None:
        log = KafkaLog(unused_address())
        writer = await log.open_writer(WriterOptions(delivery_timeout_ms=300))
        with pytest.raises(DeliveryFailed):
            await writer.send([Record("t", b"k", b"v")])
        await writer.close()

    asyncio.run(story())


def test_unknown_setting_of_librdkafka_is_a_log_error() -> None:
    async def story() -> None:
        log = KafkaLog("127.0.0.1:1", {"no.such.setting": "1"})
        with pytest.raises(LogError, match=r"no\.such\.setting"):
            await log.open_writer()

    asyncio.run(story())


def test_cancelled_send_leaves_the_writer_usable(broker: Broker) -> None:
    async def story() -> None:
        log = KafkaLog(broker.bootstrap_servers)
        spec = TopicSpec(f"t-{uuid.uuid4().hex}", 1, "k", "d")
        await log.admin.ensure_topics([spec])
        writer = await log.open_writer(WriterOptions(linger_ms=200))
        sending = asyncio.create_task(writer.send([Record(spec.name, b"k", b"1")]))
        while not len(writer._producer):  # type: ignore[attr-defined]
            await asyncio.sleep(0)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        assert await writer.send([Record(spec.name, b"k", b"2")]) == [1]
        await writer.close()

    asyncio.run(story())


def test_topics_of_the_services_can_be_created_on_a_real_broker(broker: Broker) -> None:
    async def story() -> None:
        log = KafkaLog(broker.bootstrap_servers)
        await log.admin.ensure_topics(SOCIAL_TOPICS)
        for spec in SOCIAL_TOPICS:
            assert len(await log.admin.spans(spec.name)) == spec.partitions

    asyncio.run(story())


def test_strict_reader_below_the_log_start_fails(broker: Broker) -> None:
    async def story() -> None:
        log = KafkaLog(broker.bootstrap_servers)
        spec = TopicSpec(f"t-{uuid.uuid4().hex}", 1, "k", "d")
        await log.admin.ensure_topics([spec])
        writer = await log.open_writer()
        await writer.send(Record(spec.name, b"k", b"v") for _ in range(5))
        await writer.close()
        first = TopicPartition(spec.name, PartitionIndex(0))
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        until = KafkaTopicPartition(spec.name, 0, 3)
        for future in admin.delete_records([until]).values():
            await asyncio.to_thread(future.result)
        lenient = await log.open_reader(Assignment({first: Offset(1)}))
        assert (await first_records(lenient))[0].offset == 3
        await lenient.close()
        strict = await log.open_reader(Assignment({first: Offset(1)}, strict=True))
        with pytest.raises(OffsetGone):
            await first_records(strict)
        await strict.close()

    asyncio.run(story())


def test_exception_of_a_rebalance_listener_reaches_the_reader(broker: Broker) -> None:
    class Listener:
        async def assigned(self, places: frozenset[TopicPartition]) -> None:
            raise ZeroDivisionError

        async def revoked(self, places: frozenset[TopicPartition]) -> None: ...

        async def lost(self, places: frozenset[TopicPartition]) -> None: ...

    async def story() -> None:
        log = KafkaLog(broker.bootstrap_servers)
        spec = TopicSpec(f"t-{uuid.uuid4().hex}", 1, "k", "d")
        await log.admin.ensure_topics([spec])
        reader = await log.open_reader(Subscription([spec.name], spec.name, listener=Listener()))
        with pytest.raises(ZeroDivisionError):
            await first_records(reader)
        await reader.close()

    asyncio.run(story())


@pytest.mark.parametrize(
    "code", [KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE]
)
def test_span_is_retried_while_the_leader_changes(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    class Refused(Consumer):
        """Refused twice by a broker that does not lead yet."""

        refusals = 2

        def get_watermark_offsets(self, *what: Any, **options: Any) -> tuple[int, int]:
            if Refused.refusals:
                Refused.refusals -= 1
                raise KafkaException(KafkaError(code))
            found: tuple[int, int] = super().get_watermark_offsets(*what, **options)
            return found

    async def story() -> None:
        log = KafkaLog(broker.bootstrap_servers)
        spec = TopicSpec(f"t-{uuid.uuid4().hex}", 1, "k", "d")
        await log.admin.ensure_topics([spec])
        spans = await log.admin.spans(spec.name)
        assert list(spans.values()) == [Span(Offset(0), Offset(0))]

    monkeypatch.setattr("kafkaesque.client.kafka.Consumer", Refused)
    asyncio.run(story())
    assert Refused.refusals == 0
