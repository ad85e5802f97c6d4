"""One confluent-kafka producer and consumer, shared by the tests of a process.

Creating a client takes longer than a test should, so each is created on first use and kept. The
consumer joins no group: callers give the offsets to read from.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from kafkaesque.testing.records import (
    Received,
    RecordFields,
    content_bytes,
    header_pairs,
)

FETCH_WAIT_MS = 5
"""How long a Fetch may wait. A new assignment waits for the Fetch in flight: with the default of 500 ms
every `consume` would take that long."""
_METADATA_TIMEOUT_S = 5.0
_POLL_S = 0.02
_BATCH = 1000
_TIMESTAMP_UNKNOWN = 0


class SharedClient:
    """Not thread-safe. `close` it, or use it in a `with`."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._producer: Producer | None = None
        self._consumer: Consumer | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._producer is not None:
            self._producer.close()
            self._producer = None
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    # -- producing ------------------------------------------------------------------------------

    def produce(
        self, topic: str, records: Sequence[RecordFields], within_s: float
    ) -> list[Received]:
        """Send `records` with acks=all and return them as stored, in order, once all are acknowledged."""
        producer = self._open_producer()
        stored: dict[int, Received] = {}
        errors: list[KafkaError] = []
        for index, fields in enumerate(records):
            self._send(producer, topic, index, fields, stored, errors)
        waiting = producer.flush(within_s)
        if errors:
            raise KafkaException(errors[0])
        if waiting:
            producer.purge()
            raise TimeoutError(
                f"{waiting} of {len(records)} record(s) for topic {topic} were not acknowledged "
                f"within {within_s:g} s"
            )
        return [stored[index] for index in range(len(records))]

    def _send(
        self,
        producer: Producer,
        topic: str,
        index: int,
        fields: RecordFields,
        stored: dict[int, Received],
        errors: list[KafkaError],
    ) -> None:
        headers = header_pairs(fields.get("headers", ()))

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                errors.append(error)
            else:
                # A delivery report has no headers: take those that were sent.
                stored[index] = _received(message, tuple(headers))

        given: dict[str, Any] = {
            name: fields[name] for name in ("partition", "timestamp") if name in fields
        }
        producer.produce(
            topic,
            key=content_bytes(fields.get("key")),
            value=content_bytes(fields.get("value")),
            headers=list(headers),
            on_delivery=delivered,
            **given,
        )
        producer.poll(0)

    def _open_producer(self) -> Producer:
        if self._producer is None:
            self._producer = Producer(
                {
                    "bootstrap.servers": self._bootstrap_servers,
                    "linger.ms": 0,
                    "client.id": "kafkaesque-testing",
                    "log_level": 2,
                }
            )
        return self._producer

    # -- consuming ------------------------------------------------------------------------------

    def partition_count(self, topic: str) -> int:
        """The number of partitions; 0 if the topic does not exist."""
        found = self._open_consumer().list_topics(topic, _METADATA_TIMEOUT_S).topics[topic]
        return len(found.partitions) if found.error is None else 0

    def end_offsets(self, topic: str, partition_count: int) -> list[int]:
        """The log end offset of each partition."""
        consumer = self._open_consumer()
        return [
            consumer.get_watermark_offsets(TopicPartition(topic, index), _METADATA_TIMEOUT_S)[1]
            for index in range(partition_count)
        ]

    def read(
        self, topic: str, offsets: Mapping[int, int], deadline: float, *, count: int | None
    ) -> list[Received]:
        """Read from `offsets` (by partition) until `deadline` (time.monotonic()).

        Reads up to `count` records; without a count, up to the current end of every partition.
        """
        consumer = self._open_consumer()
        consumer.assign([TopicPartition(topic, index, start) for index, start in offsets.items()])
        received: list[Received] = []
        unfinished = set(offsets)
        try:
            while unfinished if count is None else len(received) < count:
                left_s = deadline - time.monotonic()
                most = _BATCH if count is None else min(_BATCH, count - len(received))
                for message in consumer.consume(most, max(0.0, min(_POLL_S, left_s))):
                    error = message.error()
                    if error is None:
                        received.append(_received(message, _headers_of(message)))
                    elif error.code() == KafkaError._PARTITION_EOF:
                        unfinished.discard(message.partition() or 0)
                    else:
                        raise KafkaException(error)
                if left_s <= 0:
                    break
        finally:
            consumer.unassign()
        return received

    def _open_consumer(self) -> Consumer:
        if self._consumer is None:
            self._consumer = Consumer(
                {
                    "bootstrap.servers": self._bootstrap_servers,
                    "group.id": "kafkaesque-testing",
                    "enable.auto.commit": False,
                    "auto.offset.reset": "earliest",
                    "allow.auto.create.topics": False,
                    "enable.partition.eof": True,
                    "fetch.wait.max.ms": FETCH_WAIT_MS,
                    "client.id": "kafkaesque-testing",
                    "log_level": 2,
                }
            )
        return self._consumer


def _headers_of(message: Message) -> tuple[tuple[str, bytes | None], ...]:
    headers: Any = message.headers()  # the client's annotation says dict, which is wrong
    return tuple((name, content_bytes(value)) for name, value in headers or ())


def _received(message: Message, headers: tuple[tuple[str, bytes | None], ...]) -> Received:
    kind, timestamp_ms = message.timestamp()
    return Received(
        topic=message.topic() or "",
        partition=message.partition() or 0,
        offset=message.offset() or 0,
        key=_bytes_of(message.key()),
        value=_bytes_of(message.value()),
        headers=headers,
        timestamp_ms=None if kind == _TIMESTAMP_UNKNOWN else timestamp_ms,
    )


def _bytes_of(content: str | bytes | None) -> bytes | None:
    return content.encode() if isinstance(content, str) else content
