"""kafka-python: the pure-Python client."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, ClassVar

with warnings.catch_warnings():
    # Its import uses a deprecated function of importlib.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition
    from kafka import admin as kafka_admin
    from kafka import errors as kafka_errors
    from kafka import structs as kafka_structs
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
    from kafka.errors import KafkaError

from tests.conformance.clients.model import (
    Client,
    ClientFailure,
    Consumer,
    ConsumerOptions,
    Message,
    Received,
)

__all__ = [
    "KafkaError",
    "KafkaPython",
    "TopicPartition",
    "kafka_admin",
    "kafka_errors",
    "kafka_structs",
]

POLL_SECONDS_MIN = 1.5
_STRATEGIES = {"range": RangePartitionAssignor, "sticky": StickyPartitionAssignor}


class KafkaPythonConsumer(Consumer):
    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer

    def poll(self, timeout_s: float) -> list[Received]:
        # If a poll times out just when the SyncGroup response arrives, version 3.0.12 permanently loses
        # its assignment and stops its heartbeats. Long polls rarely time out.
        polled = self._consumer.poll(timeout_ms=int(max(timeout_s, POLL_SECONDS_MIN) * 1000))
        return [_received(record) for records in polled.values() for record in records]

    def assignment(self) -> set[tuple[str, int]]:
        return {(tp.topic, tp.partition) for tp in self._consumer.assignment()}

    def commit(self) -> None:
        try:
            self._consumer.commit()
        except KafkaError as error:
            raise failure(error) from error

    def seek(self, topic: str, partition: int, offset: int) -> None:
        self._consumer.seek(TopicPartition(topic, partition), offset)

    def position(self, topic: str, partition: int) -> int:
        return int(self._consumer.position(TopicPartition(topic, partition)))

    def close(self) -> None:
        self._consumer.close(autocommit=False)


class KafkaPython(Client):
    name: ClassVar[str] = "kafka-python"
    lacks: ClassVar[frozenset[str]] = frozenset({"cooperative-sticky", "null header"})

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
        producer = KafkaProducer(
            bootstrap_servers=bootstrap or self.bootstrap,
            compression_type=None if codec == "none" else codec,
            acks=acks,
            enable_idempotence=idempotent,
            max_request_size=5_000_000,
            batch_size=batch_bytes or 16384,
            linger_ms=5,
            retry_backoff_ms=20,
            reconnect_backoff_ms=10,
            reconnect_backoff_max_ms=100,
        )
        try:
            pending = [
                producer.send(
                    topic,
                    value=message.value,
                    key=message.key,
                    headers=list(message.headers),
                    partition=message.partition,
                    timestamp_ms=message.timestamp_ms,
                )
                for message in messages
            ]
            producer.flush(30)
            offsets = [int(future.get(30).offset) for future in pending]
            # With acks=0 kafka-python returns invented offsets.
            return [-1] * len(offsets) if acks == 0 else offsets
        except KafkaError as error:
            raise failure(error) from error
        finally:
            producer.close()

    def subscribe(self, topics: Sequence[str], options: ConsumerOptions) -> Consumer:
        consumer = self._consumer(options)
        consumer.subscribe(list(topics))
        return KafkaPythonConsumer(consumer)

    def assign(self, partitions: Sequence[tuple[str, int]], options: ConsumerOptions) -> Consumer:
        consumer = self._consumer(options)
        consumer.assign([TopicPartition(topic, index) for topic, index in partitions])
        return KafkaPythonConsumer(consumer)

    def _consumer(self, options: ConsumerOptions) -> Any:
        extra: dict[str, Any] = {}
        if options.max_partition_fetch_bytes is not None:
            extra["max_partition_fetch_bytes"] = options.max_partition_fetch_bytes
        if options.fetch_min_bytes is not None:
            extra["fetch_min_bytes"] = options.fetch_min_bytes
        if options.instance_id is not None:
            extra["group_instance_id"] = options.instance_id
        return KafkaConsumer(
            bootstrap_servers=self.bootstrap,
            group_id=options.group,
            auto_offset_reset=options.reset,
            enable_auto_commit=False,
            partition_assignment_strategy=[_STRATEGIES[options.strategy]],
            session_timeout_ms=options.session_timeout_ms,
            heartbeat_interval_ms=min(500, options.session_timeout_ms // 4),
            fetch_max_wait_ms=options.fetch_max_wait_ms,
            allow_auto_create_topics=options.allow_auto_create,
            metadata_max_age_ms=1000,
            **extra,
        )

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        consumer = self._consumer(ConsumerOptions())
        try:
            found = consumer.offsets_for_times({TopicPartition(topic, partition): timestamp_ms})
        finally:
            consumer.close()
        (answer,) = found.values()
        return None if answer is None else int(answer.offset)

    def watermarks(self, topic: str, partition: int) -> tuple[int, int]:
        consumer = self._consumer(ConsumerOptions())
        tp = TopicPartition(topic, partition)
        try:
            low, high = consumer.beginning_offsets([tp])[tp], consumer.end_offsets([tp])[tp]
        finally:
            consumer.close()
        return int(low), int(high)


def failure(error: Any) -> ClientFailure:
    code = getattr(error, "errno", None)
    return ClientFailure(code if code is not None and code > 0 else None, repr(error))


def _received(record: Any) -> Received:
    return Received(
        partition=record.partition,
        offset=record.offset,
        key=record.key,
        value=record.value,
        headers=tuple(record.headers),
        timestamp_ms=record.timestamp,
        timestamp_type=record.timestamp_type,
    )
