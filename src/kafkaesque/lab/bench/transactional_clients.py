"""Real transactional producers as load, and the same client without transactions beside them."""

from __future__ import annotations

import time
import uuid
from typing import Any

from confluent_kafka import Producer

from kafkaesque.lab.bench.clients import CALL_MESSAGES, FLUSH_TIMEOUT_S, QUEUE_MESSAGES
from kafkaesque.lab.bench.lanes import LoadFailed

CALL_TIMEOUT_S = 60.0


def produce_idempotent(
    bootstrap: str, topic: str, *, partitions: int, count: int, size_bytes: int
) -> dict[str, float]:
    """Everything that transactions have but the transactions: acks=all, idempotence, order."""
    producer = _new_producer(bootstrap, {"enable.idempotence": True})
    producer.list_topics(topic, timeout=CALL_TIMEOUT_S)
    messages = [{"value": b"x" * size_bytes} for _ in range(CALL_MESSAGES)]
    started = time.perf_counter()
    sent = 0
    while sent < count:
        wanted = messages[: min(CALL_MESSAGES, count - sent)]
        sent += _queue(producer, topic, wanted, sent // CALL_MESSAGES % partitions)
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
            sent += _queue(producer, topic, messages[sent:], number % partitions)
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


def _queue(producer: Any, topic: str, messages: list[dict[str, Any]], partition: int) -> int:
    try:
        queued = int(producer.produce_batch(topic, messages, partition=partition))
    except BufferError:
        queued = 0
    producer.poll(0 if queued == len(messages) else 0.005)
    return queued


def _flush(producer: Producer) -> None:
    if producer.flush(FLUSH_TIMEOUT_S):
        raise LoadFailed("not everything was delivered")


def _figures(records: int, size_bytes: int, started: float) -> dict[str, float]:
    elapsed_s = time.perf_counter() - started
    return {"records": records, "size_bytes": records * size_bytes, "elapsed_s": elapsed_s}
