"""The measurements of the pipeline benchmark: one broker, one Spark session, and the readers compared.

A measurement is a function that returns figures. Streams are measured from their second batch on, wall
time and CPU alike: the first batch starts Python workers, which happens once per stream. CPU is reported
by process (JVM, Python processes of Spark, broker), because on a busy machine only CPU is comparable.
"""

from __future__ import annotations

import contextlib
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from kafkaesque.lab.bench.figures import percentile
from kafkaesque.lab.bench.pipeline_costs import CpuMeter
from kafkaesque.lab.bench.pipeline_latency import event_to_table, event_to_trend
from kafkaesque.lab.bench.raw_load import LoadFailed
from kafkaesque.pipeline.session import SessionSettings, start_session
from kafkaesque.pipeline.source.reading import Engine, has_connector, read_stream
from kafkaesque.testing.broker_process import BrokerProcess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

Measurement = Callable[[], dict[str, float]]

TOPIC: Final = "bench"
PARTITIONS: Final = 2
FLOOR_BATCHES: Final = 300
FLOOR_BATCHES_SKIPPED: Final = 200
"""Spark's compiler threads use more CPU than the batches themselves during the first few hundred."""
_UNTUNED: Final = {"kafka.max.poll.records": "500", "kafka.max.partition.fetch.bytes": "1048576"}
_FLUSH_S: Final = 120.0
_CONSUME_IDLE_S: Final = 30.0
_POLL_S: Final = 0.05


class PipelineBench:
    """A broker with a filled topic and a Spark session, for the time of a `with`."""

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
            self._meter = CpuMeter(broker.pid)
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

    def readers(self) -> dict[str, Measurement]:
        """Measurements of readers that read the topic at full speed."""
        measurements: dict[str, Measurement] = {
            "ours": lambda: self._stream("python"),
            "confluent-loop": self._bare_loop,
            "plain-decoder": lambda: self._stream("python", {"kafkaesque.decoder": "plain"}),
        }
        if has_connector(self.spark):
            measurements["connector"] = lambda: self._stream("jvm")
            measurements["connector-default"] = lambda: self._stream("jvm", _UNTUNED)
        return measurements

    def queries(self) -> dict[str, Measurement]:
        measurements: dict[str, Measurement] = {
            "ours": lambda: self._stream("python", transform=_windowed)
        }
        if has_connector(self.spark):
            measurements["connector"] = lambda: self._stream("jvm", transform=_windowed)
        return measurements

    def floors(self) -> dict[str, Measurement]:
        """Measurements of tiny batches. `rate` is Spark's own number source: the floor of Spark itself."""
        measurements: dict[str, Measurement] = {
            "ours": lambda: self._floor(self._topic_of_pairs("python")),
            "rate": lambda: self._floor(self._rate),
        }
        if has_connector(self.spark):
            measurements["connector"] = lambda: self._floor(self._topic_of_pairs("jvm"))
        return measurements

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
        def shaped(checkpoint: Path) -> DataFrame:
            frame = self._read(engine, checkpoint, self._batch_records, options or {})
            return frame if transform is None else transform(frame)

        with _query(self._directory, shaped, transform is not None, once=True) as query:
            while query.isActive and query.lastProgress is None:
                time.sleep(_POLL_S)
            skipped = _progress(query)
            before = self._meter.read()
            query.awaitTermination()
            spent = self._meter.read() - before
            done = _progress(query)
        if sum(item["numInputRows"] for item in done) != self._records:
            raise LoadFailed(f"{engine} did not read every record once")
        settled = done[len(skipped) :] or done
        rows = sum(item["numInputRows"] for item in settled)
        elapsed_s = sum(item["durationMs"]["triggerExecution"] for item in settled) / 1000
        return {"records_per_s": rows / elapsed_s, **spent.per_million(rows)}

    def _read(
        self, engine: Engine, checkpoint: Path, rows_max: int, options: Mapping[str, str]
    ) -> DataFrame:
        given = {
            "kafka.bootstrap.servers": self.bootstrap,
            "subscribe": TOPIC,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(rows_max),
            **options,
        }
        return read_stream(self.spark, given, checkpoint=checkpoint, engine=engine)

    def _topic_of_pairs(self, engine: Engine) -> Callable[[Path], DataFrame]:
        return lambda checkpoint: self._read(engine, checkpoint, PARTITIONS, {})

    def _rate(self, checkpoint: Path) -> DataFrame:
        source = self.spark.readStream.format("rate-micro-batch")
        return source.options(rowsPerBatch=PARTITIONS, numPartitions=PARTITIONS).load()

    def _bare_loop(self) -> dict[str, float]:
        """Reads with a bare client. librdkafka's one-second fetch backoff is off: it would dominate."""
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
        before, begin_s = self._meter.read(), time.perf_counter()
        left = self._records
        deadline_s = time.monotonic() + _CONSUME_IDLE_S
        while left > 0:
            got = len(consumer.consume(10_000, 1.0))
            left -= got
            if got:
                deadline_s = time.monotonic() + _CONSUME_IDLE_S
            elif time.monotonic() > deadline_s:
                raise LoadFailed(f"the bare loop stalled with {left} records left")
        elapsed_s, spent = time.perf_counter() - begin_s, self._meter.read() - before
        consumer.close()
        return {"records_per_s": self._records / elapsed_s, **spent.per_million(self._records)}

    def _floor(self, frame: Callable[[Path], DataFrame]) -> dict[str, float]:
        """`triggerExecution` of small batches: the fixed cost of a batch."""
        with _query(self._directory, frame, has_state=False, once=False) as query:
            first = _await_batch(query, FLOOR_BATCHES_SKIPPED)
            before = self._meter.read()
            batches = _await_batch(query, FLOOR_BATCHES) - first
            spent = self._meter.read() - before
            times = [item["durationMs"]["triggerExecution"] for item in _progress(query)]
        settled = sorted(times[-batches:])
        return {
            "p50_ms": float(median(settled)),
            "p99_ms": float(percentile(settled, 0.99)),
            "cpu_ms_per_batch": spent.total_s * 1000 / batches,
            "compiler_ms_per_batch": spent.compiler_s * 1000 / batches,
        }


def _progress(query: StreamingQuery) -> list[Any]:
    return [item for item in query.recentProgress if item["numInputRows"] > 0]


def _await_batch(query: StreamingQuery, number: int) -> int:
    """Wait for a batch; returns the number of the last finished one."""
    while True:
        last: Any = query.lastProgress
        if last is not None and last["batchId"] >= number:
            return int(last["batchId"])
        if query.exception() is not None:
            raise LoadFailed(str(query.exception()))
        time.sleep(_POLL_S)


@contextlib.contextmanager
def _query(
    directory: Path, frame: Callable[[Path], DataFrame], has_state: bool, *, once: bool
) -> Iterator[StreamingQuery]:
    checkpoint = directory / uuid.uuid4().hex
    writer = frame(checkpoint).writeStream.format("noop")
    writer = writer.option("checkpointLocation", str(checkpoint))
    if has_state:
        writer = writer.outputMode("update")
    query = (writer.trigger(availableNow=True) if once else writer).start()
    try:
        yield query
    finally:
        query.stop()
        shutil.rmtree(checkpoint, ignore_errors=True)


def _windowed(frame: DataFrame) -> DataFrame:
    """from_json, a window and a count: a query in which the source matters little."""
    from pyspark.sql import functions as F

    parsed = frame.select(
        "timestamp",
        F.from_json(F.col("value").cast("string"), "id long, tag string, text string").alias("v"),
    )
    return parsed.groupBy(F.window("timestamp", "1 minute"), "v.tag").count()


def _fill(bootstrap: str, records: int) -> None:
    """Writes JSON values of about 100 bytes with keys of 8, half of them to each partition."""
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
        raise LoadFailed("the broker did not accept the records")
    producer.close()


def _described(version: str, has_jars: bool) -> dict[str, str]:
    ours = f"Spark {version}, our Python data source, compiled decoder"
    if not has_jars:
        return {"ours": ours}
    return {"ours": ours, "connector": f"Spark {version}, its own Kafka connector"}
