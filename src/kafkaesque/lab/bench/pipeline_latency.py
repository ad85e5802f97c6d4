"""Latency of a record through a running query: to a table, and to the topic of trends."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from kafkaesque.lab.bench.figures import percentile
from kafkaesque.lab.bench.raw_load import LoadFailed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kafkaesque.pipeline.operate.queries import Query

RECORDS_PER_S: Final = 50
FIRST_S_MAX: Final = 240.0
SETTLING_S: Final = 10.0
"""The first batches start workers and warm the JVM."""
MEASURED_S: Final = 20.0
LAST_S: Final = 10.0
_PARTITIONS: Final = 2


def event_to_table(spark: SparkSession, bootstrap: str, directory: Path) -> dict[str, float]:
    """Latency from a record's timestamp to the commit that makes it part of the archive's Delta table."""
    from pyspark.sql import functions as F

    from kafkaesque.pipeline.operate.queries import find_query

    seen: list[tuple[float, list[int]]] = []
    archive = find_query("archive")

    def write(rows: DataFrame, identity: Any, context: Any) -> None:
        rows.persist()
        archive.write(rows, identity, context)
        now_ms = time.time() * 1000
        times = rows.select(F.unix_millis("timestamp").alias("at_ms")).collect()
        seen.append((now_ms, [row["at_ms"] for row in times]))
        rows.unpersist()

    def value(number: int) -> bytes:
        return b'{"number": %d, "text": "%s"}' % (number, b"x" * 60)

    topic = f"table-{directory.name}"
    with _running(spark, bootstrap, directory, topic, replace(archive, write=write)):
        begun_ms = _trickle(bootstrap, topic, value, lambda: bool(seen))
    latencies = [now - at for now, times in seen for at in times if at >= begun_ms]
    return _figures(latencies)


def event_to_trend(spark: SparkSession, bootstrap: str, directory: Path) -> dict[str, float]:
    """Latency from a post's time until a consumer receives the trend that counts it.

    Each post has its own hashtag, so that its trend can be identified.
    """
    from kafkaesque.pipeline.operate.queries import find_query

    topic = f"trend-{directory.name}"
    out = f"{topic}-out"
    _create(bootstrap, out, 1)
    arrivals = _Arrivals(bootstrap, out)
    query = replace(find_query("trends-live"), topics=topic)
    with _running(spark, bootstrap, directory, topic, query, trends_topic=out):
        begun_ms = _trickle(bootstrap, topic, _post, lambda: arrivals.count > 0)
    arrived = arrivals.end()
    latencies = [
        at - sent
        for sent, at in ((_sent_ms(tag), at) for tag, at in arrived.items())
        if sent >= begun_ms
    ]
    return _figures(latencies)


def _post(number: int) -> bytes:
    now_ms = int(time.time() * 1000)
    body = {
        "network": "bench",
        "id": str(number),
        "author": f"author {number % 50}",
        "text": "x",
        "tags": [f"t{number}at{now_ms}"],
        "languages": ["en"],
        "created_ms": now_ms,
        "seen_ms": now_ms,
    }
    event = {"id": f"bench/{number}", "kind": "social.post", "version": 1, "time_ms": now_ms}
    return json.dumps({**event, "source": "bench", "body": body}).encode()


def _sent_ms(tag: str) -> float:
    return float(tag.rpartition("at")[2])


class _Arrivals(threading.Thread):
    """Records when the first trend of each hashtag arrived."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(daemon=True)
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "bench-trends",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 5,
                "fetch.queue.backoff.ms": 1,
            }
        )
        self._consumer.assign([TopicPartition(topic, 0, 0)])
        self._ending = threading.Event()
        self._arrived: dict[str, float] = {}
        self.start()

    def run(self) -> None:
        while not self._ending.is_set():
            for message in self._consumer.consume(1000, 0.05):
                now_ms = time.time() * 1000
                value = message.value()
                if message.error() is None and value is not None:
                    self._arrived.setdefault(json.loads(value)["hashtag"], now_ms)

    @property
    def count(self) -> int:
        return len(self._arrived)

    def end(self) -> dict[str, float]:
        self._ending.set()
        self.join()
        self._consumer.close()
        return self._arrived


@contextlib.contextmanager
def _running(
    spark: SparkSession,
    bootstrap: str,
    directory: Path,
    topic: str,
    query: Query,
    **settings: str,
) -> Iterator[None]:
    """Runs `query` as `pipeline run` does, in its own directory."""
    from kafkaesque.pipeline.operate.context import PipelineContext, PipelineSettings
    from kafkaesque.pipeline.operate.streaming import Trigger, start_query
    from kafkaesque.pipeline.paths import PipelineDirectory

    _create(bootstrap, topic, _PARTITIONS)
    kafka = {"bootstrap.servers": bootstrap}
    chosen = PipelineSettings(archive_pattern=topic, **settings)  # type: ignore[arg-type]
    context = PipelineContext(spark, PipelineDirectory(directory), kafka, "python", chosen)
    running = start_query(query, context, Trigger())
    try:
        yield
    finally:
        running.streaming.stop()
        failure = running.close()
    if failure is not None:
        raise LoadFailed(failure)


def _create(bootstrap: str, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions)])[topic].result(30)


def _trickle(
    bootstrap: str, topic: str, value: Callable[[int], bytes], is_flowing: Callable[[], bool]
) -> float:
    """Sends a steady stream of records. Returns the time from which they are measured: a while after
    the first ones have arrived."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    number = 0

    def send_until(is_over: Callable[[], bool]) -> None:
        nonlocal number
        begin_s, first = time.monotonic(), number
        while not is_over():
            if number - first <= (time.monotonic() - begin_s) * RECORDS_PER_S:
                producer.produce(topic, value(number))
                number += 1
            producer.poll(1 / RECORDS_PER_S / 4)

    give_up_s = time.monotonic() + FIRST_S_MAX
    send_until(lambda: is_flowing() or time.monotonic() > give_up_s)
    settled_s = time.monotonic() + SETTLING_S
    send_until(lambda: time.monotonic() > settled_s)
    begun_ms = time.time() * 1000
    over_s = time.monotonic() + MEASURED_S
    send_until(lambda: time.monotonic() > over_s)
    if producer.flush(10):
        raise LoadFailed("the broker did not accept the records")
    producer.close()
    # The last records need time to arrive.
    time.sleep(LAST_S)
    return begun_ms


def _figures(latencies_ms: list[float]) -> dict[str, float]:
    if not latencies_ms:
        raise LoadFailed("no record arrived")
    ordered = sorted(latencies_ms)
    return {
        "p50_ms": percentile(ordered, 0.5),
        "p99_ms": percentile(ordered, 0.99),
        "records": len(ordered),
    }
