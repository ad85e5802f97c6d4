"""Real clients as load: librdkafka through confluent-kafka, run inside a load process.

`produce_batch` and `consume` move thousands of messages a call, so that Python is out of the way;
what the client itself can do is then the limit, and the report says how much CPU it took.
"""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from kafkaesque.lab.bench.lanes import LoadFailed

CALL_MESSAGES = 5_000
QUEUE_MESSAGES = 400_000
POLL_TIMEOUT_S = 20.0
FLUSH_TIMEOUT_S = 120.0
"""On a busy machine the last of many synced records take their time."""


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
    """How many of `messages` fitted into the client's queue."""
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
            # librdkafka's default of one second starves a reader that is faster than its queue.
            "fetch.queue.backoff.ms": 1,
            "check.crcs": False,
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    received = 0
    started = 0.0
    while received < count:
        # `consume` waits for as many as it is asked for, so it is never asked for more than exist.
        wanted = min(CALL_MESSAGES, count - received)
        messages = consumer.consume(wanted, timeout=POLL_TIMEOUT_S)
        if not messages or messages[0].error() is not None:
            raise LoadFailed(f"consumed {received} of {count}: {messages[:1]}")
        if not started:
            # Connecting is not reading: the clock starts with the first messages, uncounted.
            started = time.perf_counter()
            count -= len(messages)
            continue
        received += len(messages)
    elapsed_s = time.perf_counter() - started
    consumer.close()
    return {"records": received, "size_bytes": received * size_bytes, "elapsed_s": elapsed_s}
