"""The Python engine beside Spark's own Kafka connector and a bare client, in turns, in one session.

    .venv/bin/python benchmarks/pipeline.py [--records 1000000] [--rounds 3] [--json]

Our own broker is a process of its own; it, Spark and its Python workers share the machine's cores.
Ratios are taken round by round and the median is told; absolute rates depend on who else runs here.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import click
import psutil
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from kafkaesque.pipeline.session import SessionSettings, start_session
from kafkaesque.pipeline.sinks.delta_table import BatchIdentity
from kafkaesque.pipeline.sinks.writing import to_table
from kafkaesque.pipeline.source import reading
from kafkaesque.pipeline.source.reading import read_batch, read_stream
from kafkaesque.testing.broker_process import BrokerProcess

TOPIC = "bench"
PARTITIONS = 2
FLOOR_BATCHES = 60
TRICKLE_S = 30
Lane = Callable[[], "Cost"]


class Cost(NamedTuple):
    """What a lane took. CPU is Spark's, its workers' and this process's, not the broker's: it says
    something on a busy machine too."""

    elapsed_s: float
    cpu_s: float


def fill(bootstrap: str, records: int) -> None:
    """JSON values of about 100 bytes, keys of 8."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS)])[TOPIC].result()
    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 20, "queue.buffering.max.messages": 2_000_000}
    )
    for number in range(records):
        value = f'{{"id":{number:09d},"tag":"tag{number % 97:02d}","text":"{"x" * 60}"}}'
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
    if producer.flush(120):
        raise SystemExit("the broker did not take the records")


def cpu_s() -> float:
    """Of this process and all below it, but for the broker."""
    total = 0.0
    own = psutil.Process()
    for process in [own, *own.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            if "kafkaesque.cli.main" not in process.cmdline():
                times = process.cpu_times()
                total += times.user + times.system
    return total


def timed(action: Callable[[], object]) -> Cost:
    cpu_before, begin = cpu_s(), time.perf_counter()
    action()
    return Cost(time.perf_counter() - begin, cpu_s() - cpu_before)


def noop(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def windowed(frame: DataFrame) -> DataFrame:
    """from_json, a window, a count: where the source stops mattering."""
    parsed = frame.select(
        "timestamp",
        F.from_json(F.col("value").cast("string"), "id long, tag string, text string").alias("v"),
    )
    return parsed.groupBy(F.window("timestamp", "1 minute"), "v.tag").count()


def bare_consumer(bootstrap: str, records: int) -> Cost:
    """librdkafka's `consume`, nothing done with the messages. Trap 4: its own back-off of 1 s."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 1,
            "queued.min.messages": 1_000_000,
        }
    )
    consumer.assign([TopicPartition(TOPIC, index, 0) for index in range(PARTITIONS)])

    def drain() -> None:
        left = records
        while left > 0:
            left -= len(consumer.consume(10_000, 1.0))

    cost = timed(drain)
    consumer.close()
    return cost


def lanes(spark: SparkSession, bootstrap: str, records: int) -> dict[str, Lane]:
    options = {
        "kafka.bootstrap.servers": bootstrap,
        "subscribe": TOPIC,
        "startingOffsets": "earliest",
    }

    def read(engine: reading.Engine, **more: str) -> DataFrame:
        return read_batch(spark, {**options, **more}, engine=engine)

    untuned = {"kafka.max.poll.records": "500", "kafka.max.partition.fetch.bytes": "1048576"}
    found: dict[str, Lane] = {
        "python": lambda: timed(lambda: noop(read("python"))),
        "python_plain_decoder": lambda: timed(
            lambda: noop(read("python", **{"kafkaesque.decoder": "plain"}))
        ),
        "python_json_window": lambda: timed(lambda: noop(windowed(read("python")))),
        "bare_confluent": lambda: bare_consumer(bootstrap, records),
    }
    if reading.has_connector(spark):
        found |= {
            "official_tuned": lambda: timed(lambda: noop(read("jvm"))),
            "official_default": lambda: timed(lambda: noop(read("jvm", **untuned))),
            "official_json_window": lambda: timed(lambda: noop(windowed(read("jvm")))),
        }
    return found


def micro_batch_floor_ms(spark: SparkSession, bootstrap: str, engine: reading.Engine) -> float:
    """Median `triggerExecution` of batches of two records."""
    with tempfile.TemporaryDirectory() as scratch:
        options = {
            "kafka.bootstrap.servers": bootstrap,
            "subscribe": TOPIC,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": "2",
        }
        frame = read_stream(spark, options, checkpoint=Path(scratch), engine=engine)
        query = frame.writeStream.format("noop").option("checkpointLocation", scratch).start()
        while (query.lastProgress or {"batchId": 0})["batchId"] < FLOOR_BATCHES:
            time.sleep(0.1)
        times = [progress["durationMs"]["triggerExecution"] for progress in query.recentProgress]
        query.stop()
        return float(statistics.median(times))


def event_to_table_ms(spark: SparkSession, bootstrap: str) -> dict[str, float]:
    """From a record's own time to the commit of the Delta table that has it, in a steady trickle."""
    topic, latencies = "trickle", []
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS)])[topic].result()
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    with tempfile.TemporaryDirectory() as scratch:
        options = {
            "kafka.bootstrap.servers": bootstrap,
            "subscribe": topic,
            "startingOffsets": "earliest",
        }
        checkpoint, table = Path(scratch, "c"), Path(scratch, "t")

        def write(rows: DataFrame, batch: int) -> None:
            rows.persist()
            to_table(rows, table, BatchIdentity("bench", "c", batch))
            now_ms = time.time() * 1000
            times = rows.select(F.unix_millis("timestamp").alias("t")).collect()
            latencies.append([now_ms - row["t"] for row in times])
            rows.unpersist()

        frame = read_stream(spark, options, checkpoint=checkpoint)
        query = (
            frame.writeStream.foreachBatch(write)
            .option("checkpointLocation", str(checkpoint))
            .start()
        )
        begin = time.monotonic()
        while time.monotonic() - begin < TRICKLE_S:
            producer.produce(topic, b"x" * 100)
            producer.poll(0.02)
        producer.flush(10)
        query.stop()
    # The first batches start the workers.
    settled = sorted(value for batch in latencies[3:] for value in batch)
    return {
        "event_to_table_p50_ms": round(settled[len(settled) // 2]),
        "event_to_table_p99_ms": round(settled[int(len(settled) * 0.99)]),
    }


def ratios(rounds: list[dict[str, Cost]]) -> dict[str, float]:
    pairs = {
        "python_to_official_tuned": ("official_tuned", "python"),
        "python_to_official_default": ("official_default", "python"),
        "python_to_bare_confluent": ("bare_confluent", "python"),
        "plain_decoder_to_official_tuned": ("official_tuned", "python_plain_decoder"),
        "json_window_to_official": ("official_json_window", "python_json_window"),
    }
    return {
        f"{name}{suffix}": round(
            statistics.median(row[slow][index] / row[fast][index] for row in rounds), 2
        )
        for name, (slow, fast) in pairs.items()
        for index, suffix in ((0, ""), (1, "_by_cpu"))
        if slow in rounds[0] and fast in rounds[0]
    }


@click.command()
@click.option("--records", default=1_000_000, show_default=True)
@click.option("--rounds", "count", default=3, show_default=True)
@click.option("--latency/--no-latency", default=True, help="Batch floor, event to table.")
@click.option("--json", "as_json", is_flag=True)
def main(records: int, count: int, latency: bool, as_json: bool) -> None:
    with (
        tempfile.TemporaryDirectory() as scratch,
        BrokerProcess(Path(scratch, "broker"), {"flush": "never"}) as broker,
    ):
        bootstrap = broker.bootstrap_servers
        fill(bootstrap, records)
        spark = start_session(SessionSettings(Path(scratch, "spark"), master="local[2]"))
        measured = lanes(spark, bootstrap, records)
        for lane in measured.values():
            lane()
        rounds = []
        for number in range(count):
            names = list(measured)
            # Each round in another order: what warms or heats the machine hits each in turn.
            order = names[number % len(names) :] + names[: number % len(names)]
            rounds.append({name: measured[name]() for name in order})
            print(f"round {number + 1}: {rounds[-1]}", file=sys.stderr)
        latencies: dict[str, float] = {}
        if latency:
            for engine in ("python", "jvm") if "official_tuned" in measured else ("python",):
                floor = micro_batch_floor_ms(spark, bootstrap, engine)
                latencies[f"micro_batch_floor_{engine}_ms"] = floor
            latencies |= event_to_table_ms(spark, bootstrap)
        spark.stop()
    rates = {
        f"{name}_records_per_s": round(
            statistics.median(records / row[name].elapsed_s for row in rounds)
        )
        for name in rounds[0]
    }
    result = {"records": records, "rounds": count, **ratios(rounds), **latencies, **rates}
    if as_json:
        print(json.dumps(result))
    else:
        for name, value in result.items():
            print(f"{name:40} {value}")


if __name__ == "__main__":
    main()
