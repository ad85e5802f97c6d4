"""Kills the pipeline's driver with kill -9, at named points around a commit and at random moments,
starts it again, and compares its table with the log: nothing missing, nothing doubled.

The parent (`run_kills`) needs only the address of a Kafka and a directory. The driver is this module
run as a program: the archive query, with a point at which it ends itself.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import click

from kafkaesque.pipeline.errors import PipelineError
from kafkaesque.pipeline.kafka.cluster import EARLIEST, LATEST, Cluster, Partition
from kafkaesque.pipeline.places import Places
from kafkaesque.pipeline.source.options import read_cluster

Point = Literal["before-write", "before-commit", "after-commit", "random", "never"]
POINTS: Sequence[Point] = ("before-write", "before-commit", "after-commit")
"""Before anything of a batch is written; files written but not named by a commit; the table has the
batch but Spark does not know it yet."""
QUERY = "archive"
CHILD_TIMEOUT_S = 300.0
RANDOM_DELAY_S_MAX = 4.0


@dataclass(frozen=True, slots=True)
class KillReport:
    """What was left after all kills, when the query was let run to the end."""

    kills: int
    rows: int
    missing: int
    doubled: int

    @property
    def passed(self) -> bool:
        return self.missing == 0 and self.doubled == 0


@dataclass(frozen=True, slots=True)
class KillSettings:
    """Where the driver reads and writes, and how it is started."""

    bootstrap: str
    topic: str
    data: Path
    rows_max: int = 500
    start: str = "earliest"
    engine: str = "python"
    master: str = "local[2]"


def run_kills(settings: KillSettings, points: Sequence[Point], chance: random.Random) -> KillReport:
    """One driver a point; the last one runs undisturbed."""
    for point in points:
        _run_child(settings, point, chance)
    _run_child(settings, "never", chance)
    return compare(settings, len(points))


def _run_child(settings: KillSettings, point: Point, chance: random.Random) -> None:
    """PipelineError if a driver that was to be killed ended by itself, or an undisturbed one failed."""
    command = [sys.executable, "-m", "kafkaesque.pipeline.driver_kill", "--point", point]
    for name in ("bootstrap", "topic", "data", "rows_max", "start", "engine", "master"):
        command += [f"--{name.replace('_', '-')}", str(getattr(settings, name))]
    log = settings.data / f"driver-{point}.log"
    settings.data.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output, _process(command, output) as child:
        if point == "random":
            _wait_for_first_batch(child, settings)
            time.sleep(chance.uniform(0, RANDOM_DELAY_S_MAX))
            os.killpg(child.pid, signal.SIGKILL)
        code = child.wait(CHILD_TIMEOUT_S)
    expected = 0 if point == "never" else -signal.SIGKILL
    if code != expected:
        raise PipelineError(
            f"the driver of point '{point}' ended with {code}:\n{log.read_text()[-2000:]}"
        )


@contextmanager
def _process(command: Sequence[str], output: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A process group of its own: the JVM and its workers end with the driver, whatever happens."""
    child = subprocess.Popen(
        command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
    )
    try:
        yield child
    finally:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def _wait_for_first_batch(child: subprocess.Popen[bytes], settings: KillSettings) -> None:
    feed = Places(settings.data).feed(QUERY)
    size_before = feed.stat().st_size if feed.exists() else 0
    deadline = time.monotonic() + CHILD_TIMEOUT_S
    while time.monotonic() < deadline and child.poll() is None:
        if feed.exists() and feed.stat().st_size > size_before:
            return
        time.sleep(0.05)


def compare(settings: KillSettings, kills: int) -> KillReport:
    """Offsets of the table against those of the log, from where the query began."""
    from deltalake import DeltaTable

    expected = {
        (partition, offset)
        for partition, (start, end) in _log_bounds(settings).items()
        for offset in range(start, end)
    }
    table = DeltaTable(Places(settings.data).table(QUERY)).to_pyarrow_table(
        columns=["topic", "partition", "offset"]
    )
    found = [((row["topic"], row["partition"]), row["offset"]) for row in table.to_pylist()]
    return KillReport(
        kills=kills,
        rows=len(found),
        missing=len(expected - set(found)),
        doubled=len(found) - len(set(found)),
    )


def _log_bounds(settings: KillSettings) -> dict[Partition, tuple[int, int]]:
    from kafkaesque.pipeline.source.offsets import from_spark

    cluster = Cluster(read_cluster({"bootstrap.servers": settings.bootstrap}))
    try:
        known = list(cluster.topology([settings.topic]).leaders)
        ends = cluster.list_offsets(dict.fromkeys(known, LATEST))
        starts: Mapping[Partition, int] = cluster.list_offsets(dict.fromkeys(known, EARLIEST))
    finally:
        cluster.close()
    if settings.start != "earliest":
        checkpoint = Places(settings.data).checkpoint(QUERY)
        written = checkpoint / "kafkaesque" / "initial-offsets-0.json"
        starts = from_spark(json.loads(written.read_text()))
    return {partition: (starts[partition], ends[partition]) for partition in known}


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _armed(write: Callable[..., None], point: str) -> Callable[..., None]:
    """`write` that ends the process at its point."""
    from kafkaesque.pipeline.sinks import writing

    def armed(rows: Any, identity: Any, context: Any) -> None:
        if point == "before-write":
            _die()
        if point == "before-commit":
            vars(writing)["commit"] = lambda *_: _die()
        write(rows, identity, context)
        if point == "after-commit":
            _die()

    return armed


@click.command()
@click.option("--point", type=click.Choice([*POINTS, "random", "never"]), required=True)
@click.option("--bootstrap", required=True)
@click.option("--topic", required=True)
@click.option("--data", type=click.Path(path_type=Path), required=True)
@click.option("--rows-max", type=int, required=True)
@click.option("--start", required=True)
@click.option("--engine", required=True)
@click.option("--master", required=True)
def main(
    point: str,
    bootstrap: str,
    topic: str,
    data: Path,
    rows_max: int,
    start: str,
    engine: Any,
    master: str,
) -> None:
    """One driver: the archive of one topic, until it has read it all or ends itself."""
    from kafkaesque.pipeline.operate.catalog import find
    from kafkaesque.pipeline.operate.context import Context, Knobs
    from kafkaesque.pipeline.operate.progress import Metrics
    from kafkaesque.pipeline.operate.running import Supervisor, Trigger
    from kafkaesque.pipeline.session import SessionSettings, start_session

    places = Places(data)
    spark = start_session(
        SessionSettings(
            places.scratch,
            master=master,
            shuffle_partitions=2,
            extra={"spark.executor.memory": "512m"},
        )
    )
    context = Context(
        spark,
        places,
        {"bootstrap.servers": bootstrap},
        engine,
        Knobs(archive_pattern=topic.replace(".", r"\.")),
    )
    query = find(QUERY)
    if point in POINTS:
        query = replace(query, write=_armed(query.write, point))
    trigger = Trigger(once=point != "random", rows_max=rows_max, start=start)
    outcomes = Supervisor(context, trigger, Metrics()).run([query])
    spark.stop()
    if any(outcome.failure for outcome in outcomes):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
