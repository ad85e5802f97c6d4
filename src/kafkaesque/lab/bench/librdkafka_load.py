"""Load from real clients: librdkafka through confluent-kafka, inside a load process.

`produce_batch` and `consume` move thousands of messages per call, so that Python is not the limit; the
client library is, and the report says how much CPU it took.
"""

from __future__ import annotations

import time
import uuid
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from kafkaesque.lab.bench.raw_load import LoadFailed

CALL_MESSAGES = 5_000
QUEUE_MESSAGES = 400_000
POLL_TIMEOUT_S = 20.0
CALL_TIMEOUT_S = 60.0
FLUSH_TIMEOUT_S = 120.0
"""On a busy machine the last of many synced records take long."""


def produce(
    bootstrap: str, topic: str, *, partitions: int, count: int, size_bytes: int, acks: int = 1
) -> dict[str, float]:
    """Produce `count` messages of `size_bytes` and wait for every acknowledgement."""
    failures: list[str] = []

    def delivered(error: Any, _message: Any) -> None:
        if error is not None:
            failures.append(str(error))

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": acks,
            "queue.buffering.max.messages": QUEUE_MESSAGES,
            "queue.buffering.max.kbytes": 1 << 20,
            "linger.ms": 5,
            "delivery.report.only.error": True,
            "on_delivery": delivered,
        }
    )
    producer.list_topics(topic, timeout=POLL_TIMEOUT_S)
    messages = [{"value": b"x" * size_bytes} for _ in range(CALL_MESSAGES)]
    started = time.perf_counter()
    sent = 0
    while sent < count:
        wanted = min(CALL_MESSAGES, count - sent)
        queued = _queue(producer, topic, messages[:wanted], sent // CALL_MESSAGES % partitions)
        sent += queued
        producer.poll(0 if queued == wanted else 0.005)
    if producer.flush(FLUSH_TIMEOUT_S) or failures:
        raise LoadFailed(f"not everything was delivered: {failures[:1]}")
    elapsed_s = time.perf_counter() - started
    return {"records": count, "size_bytes": count * size_bytes, "elapsed_s": elapsed_s}


def _queue(producer: Any, topic: str, messages: list[dict[str, Any]], partition: int) -> int:
    """Queue as many of `messages` as the client accepts; returns how many."""
    try:
        return int(producer.produce_batch(topic, messages, partition=partition))
    except BufferError:
        return 0


def consume(
    bootstrap: str, topic: str, *, partitions: int, count: int, size_bytes: int
) -> dict[str, float]:
    """Read `count` messages from the beginning, assigned by hand."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "enable.partition.eof": False,
            "queued.min.messages": QUEUE_MESSAGES,
            "queued.max.messages.kbytes": 512 * 1024,
            # With librdkafka's default of one second a fast reader starves.
            "fetch.queue.backoff.ms": 1,
            "check.crcs": False,
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    received = 0
    started = 0.0
    while received < count:
        # `consume` waits for the full count, so never ask for more than exist.
        wanted = min(CALL_MESSAGES, count - received)
        messages = consumer.consume(wanted, timeout=POLL_TIMEOUT_S)
        if not messages or messages[0].error() is not None:
            raise LoadFailed(f"consumed {received} of {count}: {messages[:1]}")
        if not started:
            # The clock starts with the first messages, which do not count: connecting is not reading.
            started = time.perf_counter()
            count -= len(messages)
            continue
        received += len(messages)
    elapsed_s = time.perf_counter() - started
    consumer.close()
    return {"records": received, "size_bytes": received * size_bytes, "elapsed_s": elapsed_s}


def produce_idempotent(
    bootstrap: str, topic: str, *, partitions: int, count: int, size_bytes: int
) -> dict[str, float]:
    """The baseline of transactions: acks=all, idempotence and order, but no transactions."""
    producer = _new_producer(bootstrap, {"enable.idempotence": True})
    producer.list_topics(topic, timeout=CALL_TIMEOUT_S)
    messages = [{"value": b"x" * size_bytes} for _ in range(CALL_MESSAGES)]
    started = time.perf_counter()
    sent = 0
    while sent < count:
        wanted = messages[: min(CALL_MESSAGES, count - sent)]
        sent += _queue_and_poll(producer, topic, wanted, sent // CALL_MESSAGES % partitions)
    _flush(producer)
    return _figures(count, size_bytes, started)


def produce_transactions(
    bootstrap: str,
    topic: str,
    *,
    partitions: int,
    count: int,
    size_bytes: int,
    per_transaction: int,
) -> dict[str, float]:
    """The same in transactions of `per_transaction` records, one after the other."""
    producer = _new_producer(bootstrap, {"transactional.id": f"bench-{uuid.uuid4().hex}"})
    producer.init_transactions(CALL_TIMEOUT_S)
    messages = [{"value": b"x" * size_bytes} for _ in range(per_transaction)]
    started = time.perf_counter()
    for number in range(count // per_transaction):
        producer.begin_transaction()
        sent = 0
        while sent < per_transaction:
            sent += _queue_and_poll(producer, topic, messages[sent:], number % partitions)
        producer.commit_transaction(CALL_TIMEOUT_S)
    transactions = count // per_transaction
    figures = _figures(transactions * per_transaction, size_bytes, started)
    return figures | {"transactions": transactions}


def _new_producer(bootstrap: str, settings: dict[str, Any]) -> Producer:
    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "queue.buffering.max.messages": QUEUE_MESSAGES,
            "queue.buffering.max.kbytes": 1 << 20,
            "linger.ms": 5,
            "delivery.report.only.error": True,
            **settings,
        }
    )


def _queue_and_poll(
    producer: Any, topic: str, messages: list[dict[str, Any]], partition: int
) -> int:
    queued = _queue(producer, topic, messages, partition)
    producer.poll(0 if queued == len(messages) else 0.005)
    return queued


def _flush(producer: Producer) -> None:
    if producer.flush(FLUSH_TIMEOUT_S):
        raise LoadFailed("not everything was delivered")


def _figures(records: int, size_bytes: int, started: float) -> dict[str, float]:
    elapsed_s = time.perf_counter() - started
    return {"records": records, "size_bytes": records * size_bytes, "elapsed_s": elapsed_s}
