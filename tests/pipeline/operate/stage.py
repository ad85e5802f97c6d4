"""Posts as records of a topic, and the content of the tables."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from confluent_kafka import Producer

from kafkaesque.events.envelope import encode
from kafkaesque.events.social import Post, PostDeleted, post_envelope

NOON_MS = 1_790_000_000_000 // 3_600_000 * 3_600_000
MINUTE_MS = 60_000


def post(number: int, minute: int = 0, tag: str = "a") -> dict[str, Any]:
    event = Post(
        network="n",
        id=f"p{number}",
        author=f"u{number % 3}",
        text=f"post {number}",
        tags=(tag,),
        languages=("en",),
        created_ms=NOON_MS,
        seen_ms=NOON_MS + minute * MINUTE_MS,
    )
    value = encode(post_envelope(event, "test"))
    return {"value": value, "partition": number % 2, "timestamp": NOON_MS + minute * MINUTE_MS}


def deletion(number: int) -> dict[str, Any]:
    event = PostDeleted(network="n", id=f"p{number}", deleted_ms=NOON_MS)
    return {"value": encode(post_envelope(event, "test")), "partition": number % 2}


def table(bench: SimpleNamespace, name: str) -> Any:
    from kafkaesque.pipeline.sinks.delta_table import read_table

    return read_table(bench.context.spark, bench.context.table(name))


def ids(frame: Any) -> list[str]:
    return sorted(row["id"] for row in frame.select("id").collect())


def transactions(bootstrap: str, topic: str, *, commits: str) -> None:
    """One transaction of three records in partition 0 per letter: c commits, a aborts."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic, "log_level": 0})
    try:
        producer.init_transactions(60)
        for number, letter in enumerate(commits):
            producer.begin_transaction()
            for row in range(3):
                value = f"{letter}{number} {row}".encode()
                producer.produce(topic, value, partition=0, timestamp=NOON_MS)
            assert producer.flush(60) == 0
            if letter == "c":
                producer.commit_transaction(60)
            else:
                producer.abort_transaction(60)
    finally:
        producer.close()
