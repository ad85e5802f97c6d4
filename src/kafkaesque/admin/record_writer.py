"""Writes records to a topic by librdkafka and collects the delivery reports."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from kafkaesque.admin.connection import ClusterConnection, kafka_error
from kafkaesque.admin.errors import ResourceNotFound

QUEUE_RECORDS_MAX = 100_000
QUEUE_KBYTES_MAX = 64 * 1024
POLL_EVERY_RECORDS = 100
FAILURES_KEPT_MAX = 20
AUTO_CREATE_ATTEMPTS = 5
"""Apache Kafka responds to the request that auto-creates a topic before the topic exists."""


class OutgoingRecord(NamedTuple):
    """One record to write. `number` is its line in the input, counted from 1, for error messages."""

    number: int
    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None

    @property
    def size_bytes(self) -> int:
        return len(self.value or b"") + len(self.key or b"")


class DeliveryFailure(NamedTuple):
    """A record that was not written, by its input and its line there."""

    source: str
    number: int
    error: KafkaError


def open_producer(
    connection: ClusterConnection, topic: str, *, acks: str, idempotent: bool, compression: str
) -> Producer:
    """A producer for `topic`, with the partitioner of the Java client.

    Fails at once if the topic does not exist, instead of after minutes of retries. The producer's
    metadata request creates the topic if the broker allows it (`auto.create.topics.enable`).
    """
    producer = connection.producer(
        acks=acks,
        enable_idempotence=idempotent,
        compression_type=compression,
        partitioner="murmur2_random",
        message_timeout_ms=int(connection.timeout_s * 1000),
        queue_buffering_max_messages=QUEUE_RECORDS_MAX,
        queue_buffering_max_kbytes=QUEUE_KBYTES_MAX,
    )
    doing = f"write to '{topic}'"
    for _ in range(AUTO_CREATE_ATTEMPTS):
        try:
            found = producer.list_topics(topic, timeout=connection.timeout_s).topics[topic]
        except KafkaException as exception:
            raise connection.admin_error(kafka_error(exception), doing) from None
        if found.error is None:
            return producer
        if found.error.code() not in (
            KafkaError.UNKNOWN_TOPIC_OR_PART,
            KafkaError.LEADER_NOT_AVAILABLE,
        ):
            raise connection.admin_error(found.error, doing)
        producer.poll(0.2)
    raise ResourceNotFound(
        f"there is no topic '{topic}'", f"`kafkaesque topic create {topic}` creates it"
    )


class RecordWriter:
    """Passes records of one topic to librdkafka and collects delivery reports.

    Memory is bounded by librdkafka's queue: when it is full, `write` waits for deliveries.
    `on_delivered` is called with the size of every record that was written.
    """

    def __init__(self, producer: Producer, topic: str, on_delivered: Callable[[int], None]) -> None:
        self._producer = producer
        self._topic = topic
        self._on_delivered = on_delivered
        self._since_poll = 0
        self.failed = 0
        self.timed_out = False
        """Whether a record failed because no broker accepted it in time."""
        self.failures: list[DeliveryFailure] = []
        """The first FAILURES_KEPT_MAX of them."""

    def write(self, record: OutgoingRecord, source: str) -> None:
        """Queues a record of the input `source`."""
        optional: dict[str, Any] = {}
        if record.partition is not None:
            optional["partition"] = record.partition
        if record.timestamp_ms is not None:
            optional["timestamp"] = record.timestamp_ms
        if record.headers:
            optional["headers"] = list(record.headers)
        done = partial(self._delivered, source, record.number, record.size_bytes)
        while True:
            try:
                self._producer.produce(
                    self._topic, record.value, record.key, on_delivery=done, **optional
                )
                break
            except BufferError:
                self._producer.poll(0.5)
            except KafkaException as exception:
                self._failed(source, record.number, kafka_error(exception))
                break
        self._since_poll += 1
        if self._since_poll >= POLL_EVERY_RECORDS:
            self._producer.poll(0)
            self._since_poll = 0

    def _delivered(
        self, source: str, number: int, size_bytes: int, error: KafkaError | None, _message: Message
    ) -> None:
        if error is None:
            self._on_delivered(size_bytes)
        else:
            self._failed(source, number, error)

    def _failed(self, source: str, number: int, error: KafkaError) -> None:
        self.failed += 1
        self.timed_out |= error.code() == KafkaError._MSG_TIMED_OUT
        if len(self.failures) < FAILURES_KEPT_MAX:
            self.failures.append(DeliveryFailure(source, number, error))

    def finish(self) -> None:
        """Waits for all delivery reports; librdkafka fails records that exceed its timeout."""
        while self._producer.flush(0.2):
            pass

    @contextmanager
    def polling(self) -> Iterator[None]:
        """Polls for delivery reports in a thread while the main thread waits for input."""
        over = threading.Event()

        def poll() -> None:
            while not over.is_set():
                self._producer.poll(0.1)

        thread = threading.Thread(target=poll, name="deliveries", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
