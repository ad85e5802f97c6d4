"""What the pipeline benchmark runs: one broker, one Spark session, and a lane for each who reads.

A lane returns its figures. Streams are measured from their second batch on: the first starts Python
workers, which a stream does once in its life.
"""

from __future__ import annotations

import contextlib
import shutil
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from kafkaesque.bench.figures import percentile
from kafkaesque.bench.lanes import LoadFailed
from kafkaesque.bench.pipeline_latency import event_to_table, event_to_trend
from kafkaesque.bench.processes import cpu_seconds, descendants
from kafkaesque.pipeline.session import SessionSettings, start_session
from kafkaesque.pipeline.source.reading import Engine, has_connector, read_stream
from kafkaesque.testing.broker_process import BrokerProcess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

Lane = Callable[[], dict[str, float]]

TOPIC: Final = "bench"
PARTITIONS: Final = 2
FLOOR_BATCHES: Final = 60
FLOOR_BATCHES_SKIPPED: Final = 20
_UNTUNED: Final = {"kafka.max.poll.records": "500", "kafka.max.partition.fetch.bytes": "1048576"}
_FLUSH_S: Final = 120.0
_CONSUME_IDLE_S: Final = 30.0


class Bed:
    """The broker with a filled topic, and Spark beside it; both end with it."""

    def __init__(
        self, directory: Path, records: int, batch_records: int, say: Callable[[str], None]
    ) -> None:
        self._directory = directory
        self._records = records
        self._batch_records = batch_records
        self._say = say
        self._stack = contextlib.ExitStack()
        self.described: dict[str, str] = {}

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            settings = {"flush": "never"}
            broker = stack.enter_context(BrokerProcess(self._directory / "broker", settings))
            self.bootstrap = broker.bootstrap_servers
            self._say(f"writing {self._records:,} records")
            _fill(self.bootstrap, self._records)
            settings_of_spark = SessionSettings(
                self._directory / "spark",
                master="local[2]",
                driver_memory="2g",
                extra={"spark.sql.streaming.numRecentProgressUpdates": str(FLOOR_BATCHES)},
            )
            self.spark = start_session(settings_of_spark)
            stack.callback(self.spark.stop)
            self.described = _described(self.spark.version, has_connector(self.spark))
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def readers(self) -> dict[str, Lane]:
        """Who reads the topic as fast as it goes."""
        lanes: dict[str, Lane] = {
            "ours": lambda: self._stream("python"),
            "confluent-loop": self._bare_loop,
            "plain-decoder": lambda: self._stream("python", {"kafkaesque.decoder": "plain"}),
        }
        if has_connector(self.spark):
            lanes["connector"] = lambda: self._stream("jvm")
            lanes["connector-default"] = lambda: self._stream("jvm", _UNTUNED)
        return lanes

    def queries(self) -> dict[str, Lane]:
        lanes: dict[str, Lane] = {"ours": lambda: self._stream("python", transform=_windowed)}
        if has_connector(self.spark):
            lanes["connector"] = lambda: self._stream("jvm", transform=_windowed)
        return lanes

    def floors(self) -> dict[str, Lane]:
        lanes: dict[str, Lane] = {"ours": lambda: self._floor("python")}
        if has_connector(self.spark):
            lanes["connector"] = lambda: self._floor("jvm")
        return lanes

    def to_table(self) -> dict[str, float]:
        return event_to_table(self.spark, self.bootstrap, self._directory / uuid.uuid4().hex)

    def to_trend(self) -> dict[str, float]:
        return event_to_trend(self.spark, self.bootstrap, self._directory / uuid.uuid4().hex)

    def _stream(
        self,
        engine: Engine,
        options: Mapping[str, str] | None = None,
        transform: Callable[[DataFrame], DataFrame] | None = None,
    ) -> dict[str, float]:
        with _query(self, engine, self._batch_records, options or {}, transform) as query:
            cpu_before_s = _cpu_s()
            query.awaitTermination()
            cpu_s = _cpu_s() - cpu_before_s
            done = [item for item in query.recentProgress if item["numInputRows"] > 0]
        if sum(item["numInputRows"] for item in done) != self._records:
            raise LoadFailed(f"{engine} did not read every record once")
        settled = done[1:] or done
        rows = sum(item["numInputRows"] for item in settled)
        elapsed_s = sum(item["durationMs"]["triggerExecution"] for item in settled) / 1000
        return {"records_per_s": rows / elapsed_s, "cpu_s_per_million": cpu_s * 1e6 / self._records}

    def _bare_loop(self) -> dict[str, float]:
        """Trap 4 of research/spark.md: librdkafka's own back-off of a second must be off."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "bench",
                "enable.auto.commit": False,
                "fetch.queue.backoff.ms": 1,
                "queued.min.messages": 1_000_000,
            }
        )
        consumer.assign([TopicPartition(TOPIC, index, 0) for index in range(PARTITIONS)])
        cpu_before_s, begin_s = _cpu_s(), time.perf_counter()
        left = self._records
        deadline_s = time.monotonic() + _CONSUME_IDLE_S
        while left > 0:
            got = len(consumer.consume(10_000, 1.0))
            left -= got
            if got:
                deadline_s = time.monotonic() + _CONSUME_IDLE_S
            elif time.monotonic() > deadline_s:
                raise LoadFailed(f"the bare loop stands still with {left} records to go")
        elapsed_s, cpu_s = time.perf_counter() - begin_s, _cpu_s() - cpu_before_s
        consumer.close()
        return {
            "records_per_s": self._records / elapsed_s,
            "cpu_s_per_million": cpu_s * 1e6 / self._records,
        }

    def _floor(self, engine: Engine) -> dict[str, float]:
        """`triggerExecution` of small batches: what a batch costs before it has any rows."""
        with _query(self, engine, 2, {}, None, once=False) as query:
            while (query.lastProgress or {"batchId": 0})["batchId"] < FLOOR_BATCHES:
                if query.exception() is not None:
                    raise LoadFailed(str(query.exception()))
                time.sleep(0.1)
            times = [item["durationMs"]["triggerExecution"] for item in query.recentProgress]
            query.stop()
        settled = sorted(times[-(FLOOR_BATCHES - FLOOR_BATCHES_SKIPPED) :])
        return {"p50_ms": float(median(settled)), "p99_ms": float(percentile(settled, 0.99))}


@contextlib.contextmanager
def _query(
    bed: Bed,
    engine: Engine,
    rows_max: int,
    options: Mapping[str, str],
    transform: Callable[[DataFrame], DataFrame] | None,
    *,
    once: bool = True,
) -> Any:
    checkpoint = bed._directory / uuid.uuid4().hex
    frame = read_stream(
        bed.spark,
        {
            "kafka.bootstrap.servers": bed.bootstrap,
            "subscribe": TOPIC,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(rows_max),
            **options,
        },
        checkpoint=checkpoint,
        engine=engine,
    )
    shaped = frame if transform is None else transform(frame)
    writer = shaped.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    if transform is not None:
        writer = writer.outputMode("update")
    query: StreamingQuery = (writer.trigger(availableNow=True) if once else writer).start()
    try:
        yield query
    finally:
        query.stop()
        shutil.rmtree(checkpoint, ignore_errors=True)


def _windowed(frame: DataFrame) -> DataFrame:
    """from_json, a window, a count: where the source stops mattering."""
    from pyspark.sql import functions as F

    parsed = frame.select(
        "timestamp",
        F.from_json(F.col("value").cast("string"), "id long, tag string, text string").alias("v"),
    )
    return parsed.groupBy(F.window("timestamp", "1 minute"), "v.tag").count()


def _fill(bootstrap: str, records: int) -> None:
    """JSON values of about 100 bytes, keys of 8, half in each partition."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS)])[TOPIC].result(30)
    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 20, "queue.buffering.max.messages": 1_000_000}
    )
    text = "x" * 60
    for number in range(records):
        value = f'{{"id":{number:09d},"tag":"tag{number % 97:02d}","text":"{text}"}}'
        while True:
            try:
                producer.produce(
                    TOPIC, value.encode(), key=b"%08d" % number, partition=number % PARTITIONS
                )
                break
            except BufferError:
                producer.poll(0.1)
        if number % 10_000 == 0:
            producer.poll(0)
    if producer.flush(_FLUSH_S):
        raise LoadFailed("the broker did not take the records")
    producer.close()


def _cpu_s() -> float:
    """Of this process and all below it, the broker too: it serves each lane the same bytes."""
    import os

    return cpu_seconds(descendants(os.getpid()))


def _described(version: str, has_jars: bool) -> dict[str, str]:
    ours = f"Spark {version}, our Python data source, compiled decoder"
    if not has_jars:
        return {"ours": ours}
    return {"ours": ours, "connector": f"Spark {version}, its own Kafka connector"}
