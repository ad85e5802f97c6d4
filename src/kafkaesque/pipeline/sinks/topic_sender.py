"""Sends rows to a topic, each with headers that identify its batch.

Spark writes a batch again that was cut off. Without transactions every reader would see the repeats,
so each record carries the query, the batch and its place in the batch as headers, and readers drop
repeats by them (`jobs.repeats.drop_repeats`). The producer is idempotent: within one attempt no
record is duplicated or reordered.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from kafkaesque.pipeline.errors import KafkaRefused, KafkaUnreachable
from kafkaesque.pipeline.jobs.repeats import BATCH_HEADER, QUERY_HEADER, ROW_HEADER

FLUSH_TIMEOUT_S = 120.0
BATCH_SIZE_BYTES = 128 * 1024
_POLL_EVERY = 1000
COLUMNS = frozenset({"key", "value", "topic", "partition", "headers", "timestamp"})


@dataclass(frozen=True, slots=True)
class TopicTarget:
    """The topic that rows are sent to, and the batch they belong to."""

    properties: Mapping[str, str]
    topic: str | None
    query: str
    checkpoint: str
    batch: int


class TopicSender:
    """The producer of one task. It fails unless every record is acknowledged."""

    def __init__(self, target: TopicTarget, task: int) -> None:
        self._target = target
        self._task = task
        self._failure: KafkaError | None = None
        self._count = 0
        self._producer = Producer(
            {
                "acks": "all",
                "linger.ms": 5,
                # A broker rejects a batch that is larger than a segment of the topic.
                "batch.size": BATCH_SIZE_BYTES,
                "log_level": 0,
                **target.properties,
                "enable.idempotence": True,
                "client.id": f"kafkaesque-pipeline-{target.query}",
            }
        )

    def send_all(self, batches: Iterator[pa.RecordBatch]) -> int:
        for batch in batches:
            for row in batch.to_pylist():
                self._send(row)
        waiting = self._producer.flush(FLUSH_TIMEOUT_S)
        if self._failure is not None:
            raise KafkaRefused(f"a record was not delivered: {self._failure.str()}")
        if waiting:
            raise KafkaUnreachable(
                f"{waiting} records were not acknowledged within {FLUSH_TIMEOUT_S:g} s"
            )
        return self._count

    def _send(self, row: Mapping[str, Any]) -> None:
        headers = [(item["key"], item["value"]) for item in row.get("headers") or ()]
        headers += self._identity()
        given: dict[str, Any] = {}
        if row.get("partition") is not None:
            given["partition"] = row["partition"]
        if row.get("timestamp") is not None:
            given["timestamp"] = int(row["timestamp"].timestamp() * 1000)
        while True:
            try:
                self._producer.produce(
                    row.get("topic") or self._target.topic or "",
                    value=row["value"],
                    key=row.get("key"),
                    headers=headers,
                    on_delivery=self._delivered,
                    **given,
                )
                break
            except BufferError:
                self._producer.poll(0.1)
            except KafkaException as error:
                raise KafkaRefused(f"a record cannot be sent: {error}") from error
        self._count += 1
        if self._count % _POLL_EVERY == 0:
            self._producer.poll(0)

    def _identity(self) -> list[tuple[str, bytes]]:
        target = self._target
        return [
            (QUERY_HEADER, f"{target.query}/{target.checkpoint}".encode()),
            (BATCH_HEADER, str(target.batch).encode()),
            (ROW_HEADER, f"{self._task}/{self._count}".encode()),
        ]

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None and self._failure is None:
            self._failure = error
