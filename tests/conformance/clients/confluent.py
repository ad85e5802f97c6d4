"""confluent-kafka: librdkafka, which most client libraries except Java's are based on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import confluent_kafka as ck
from tests.conformance.clients.model import (
    Client,
    ClientFailure,
    Consumer,
    ConsumerOptions,
    Message,
    Received,
)

from kafkaesque.model.errors import ErrorCode


class ConfluentConsumer(Consumer):
    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer

    def poll(self, timeout_s: float) -> list[Received]:
        try:
            messages = self._consumer.consume(500, timeout_s / 10)
            if not messages:
                messages = self._consumer.consume(1, timeout_s)
        except ck.KafkaException as error:
            raise failure(error.args[0]) from error
        return [_received(message) for message in messages]

    def assignment(self) -> set[tuple[str, int]]:
        return {(tp.topic, tp.partition) for tp in self._consumer.assignment()}

    def commit(self) -> None:
        try:
            self._consumer.commit(asynchronous=False)
        except ck.KafkaException as error:
            raise failure(error.args[0]) from error

    def seek(self, topic: str, partition: int, offset: int) -> None:
        # By assignment: librdkafka's own seek needs the fetcher to be running already.
        others = [
            tp
            for tp in self._consumer.assignment()
            if (tp.topic, tp.partition) != (topic, partition)
        ]
        for tp in others:
            (position,) = self._consumer.position([tp])
            tp.offset = position.offset if position.offset >= 0 else tp.offset
        self._consumer.assign([*others, ck.TopicPartition(topic, partition, offset)])

    def position(self, topic: str, partition: int) -> int:
        (position,) = self._consumer.position([ck.TopicPartition(topic, partition)])
        return int(position.offset)

    def close(self) -> None:
        self._consumer.close()


class Confluent(Client):
    name: ClassVar[str] = "confluent-kafka"

    def produce(
        self,
        topic: str,
        messages: Sequence[Message],
        *,
        codec: str = "none",
        acks: int = -1,
        idempotent: bool = False,
        bootstrap: str | None = None,
        batch_bytes: int | None = None,
    ) -> list[int]:
        settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap or self.bootstrap,
            "compression.type": codec,
            "acks": acks,
            "enable.idempotence": idempotent,
            "message.max.bytes": 5_000_000,
            "linger.ms": 5,
            "retry.backoff.ms": 20,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 100,
        }
        if batch_bytes is not None:
            settings["batch.size"] = batch_bytes
        producer = ck.Producer(settings)
        outcome: list[Any] = [None] * len(messages)

        def delivered(index: int, error: Any, message: Any) -> None:
            outcome[index] = error if error is not None else message.offset()

        for index, message in enumerate(messages):
            extra = {} if message.timestamp_ms is None else {"timestamp": message.timestamp_ms}
            producer.produce(
                topic,
                value=message.value,
                key=message.key,
                headers=list(message.headers),
                partition=message.partition,
                on_delivery=lambda error, sent, index=index: delivered(index, error, sent),
                **extra,
            )
            producer.poll(0)
        assert producer.flush(30) == 0
        for result in outcome:
            if isinstance(result, ck.KafkaError):
                raise failure(result)
        return [-1 if acks == 0 else int(result) for result in outcome]

    def subscribe(self, topics: Sequence[str], options: ConsumerOptions) -> Consumer:
        consumer = self._consumer(options)
        consumer.subscribe(list(topics))
        return ConfluentConsumer(consumer)

    def assign(self, partitions: Sequence[tuple[str, int]], options: ConsumerOptions) -> Consumer:
        consumer = self._consumer(options)
        consumer.assign([ck.TopicPartition(topic, index) for topic, index in partitions])
        return ConfluentConsumer(consumer)

    def _consumer(self, options: ConsumerOptions) -> Any:
        settings: dict[str, Any] = {
            "bootstrap.servers": self.bootstrap,
            "group.id": options.group or "unused",
            "auto.offset.reset": options.reset,
            "enable.auto.commit": False,
            "partition.assignment.strategy": options.strategy,
            "session.timeout.ms": options.session_timeout_ms,
            "heartbeat.interval.ms": min(500, options.session_timeout_ms // 4),
            "fetch.wait.max.ms": options.fetch_max_wait_ms,
            "allow.auto.create.topics": options.allow_auto_create,
            "topic.metadata.refresh.interval.ms": 1000,
        }
        if options.instance_id is not None:
            settings["group.instance.id"] = options.instance_id
        if options.max_partition_fetch_bytes is not None:
            settings["max.partition.fetch.bytes"] = options.max_partition_fetch_bytes
        if options.fetch_min_bytes is not None:
            settings["fetch.min.bytes"] = options.fetch_min_bytes
        return ck.Consumer(settings)

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        consumer = self._consumer(ConsumerOptions())
        try:
            (found,) = consumer.offsets_for_times(
                [ck.TopicPartition(topic, partition, timestamp_ms)], timeout=10
            )
        finally:
            consumer.close()
        return int(found.offset) if found.offset >= 0 else None

    def watermarks(self, topic: str, partition: int) -> tuple[int, int]:
        consumer = self._consumer(ConsumerOptions())
        try:
            low, high = consumer.get_watermark_offsets(
                ck.TopicPartition(topic, partition), timeout=10
            )
        finally:
            consumer.close()
        return int(low), int(high)


def failure(error: Any) -> ClientFailure:
    code = error.code()
    # librdkafka's own errors are negative; two of them correspond to an answer of the broker.
    codes = {
        ck.KafkaError._UNKNOWN_TOPIC: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ck.KafkaError._UNKNOWN_PARTITION: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    return ClientFailure(codes.get(code, code if code > 0 else None), error.str())


def _received(message: Any) -> Received:
    if message.error() is not None:
        raise failure(message.error())
    kind, timestamp = message.timestamp()
    return Received(
        partition=message.partition(),
        offset=message.offset(),
        key=message.key(),
        value=message.value(),
        headers=tuple(message.headers() or ()),
        timestamp_ms=timestamp,
        timestamp_type=1 if kind == ck.TIMESTAMP_LOG_APPEND_TIME else 0,
    )
