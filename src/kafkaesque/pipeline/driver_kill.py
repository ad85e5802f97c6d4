"""Kills the pipeline's driver with kill -9, at named points around a commit and at random moments,
starts it again, and compares every sink with the log: nothing missing, nothing doubled.

Needs only the address of a Kafka and a directory. The driver is `killed_driver.py`, a process with a
JVM and workers of its own.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kafkaesque.pipeline.errors import PipelineError
from kafkaesque.pipeline.killed_driver import (
    ARCHIVE,
    PARQUET,
    SELF_POINTS,
    SINKS,
    parquet_directory,
)
from kafkaesque.pipeline.places import Places
from kafkaesque.pipeline.sink_check import SinkReport, check_sinks
from kafkaesque.pipeline.sinks.parquet_files import METADATA

RANDOM: Final = "random"
NEVER: Final = "never"
WATCHED_POINTS: Final = ("planned", "parquet-written", "parquet-committed")
"""Points that are seen from outside: a batch is planned in the checkpoint; Parquet files are written
but no batch names them; the sink names them but Spark does not know the batch to be done."""
POINTS: Final = ("planned", *SELF_POINTS, "parquet-written", "parquet-committed")

CHILD_TIMEOUT_S: Final = 900.0
"""A driver starts in half a minute on a machine at rest; on one that is not, in many."""
RANDOM_DELAY_S_MAX: Final = 4.0
START_SHARE: Final = 0.25
"""Of the random kills so many hit a driver that has not finished a batch yet."""
START_DELAY_S_MAX: Final = 15.0
_POLL_S: Final = 0.005


@dataclass(frozen=True, slots=True)
class KillSettings:
    """Where the driver reads and writes, and how it is started."""

    bootstrap: str
    pattern: str
    data: Path
    relay_topic: str = "relay.out"
    rows_max: int = 500
    start: str = "earliest"
    engine: str = "python"
    master: str = "local[2]"
    sinks: Sequence[str] = SINKS

    @property
    def places(self) -> Places:
        return Places(self.data)


@dataclass(frozen=True, slots=True)
class KillReport:
    """What was left after all kills, when the driver was let run to the end."""

    kills: int
    sinks: Sequence[SinkReport]

    @property
    def missing(self) -> int:
        return sum(sink.missing for sink in self.sinks)

    @property
    def doubled(self) -> int:
        return sum(sink.doubled + sink.foreign for sink in self.sinks)


def run_kills(settings: KillSettings, points: Sequence[str], chance: random.Random) -> KillReport:
    """One driver a point; the last one runs undisturbed."""
    for point in points:
        kill_at(settings, point, chance)
    return finish(settings, len(points))


def kill_at(settings: KillSettings, point: str, chance: random.Random) -> None:
    """One driver that is killed at `point`. There must be records that it has not written yet.

    PipelineError if it ended by itself instead.
    """
    with _driver(settings, point) as (child, log):
        if point in WATCHED_POINTS:
            watched = _watched(settings, point)
            known = set(watched())
            _wait(child, lambda: bool(set(watched()) - known))
            os.killpg(child.pid, signal.SIGKILL)
        elif point == RANDOM:
            _wait_at_random(child, settings, chance)
            os.killpg(child.pid, signal.SIGKILL)
        code = child.wait(CHILD_TIMEOUT_S)
    if code != -signal.SIGKILL:
        raise PipelineError(
            f"the driver of point '{point}' ended with {code}:\n{log.read_text()[-2000:]}"
        )


def finish(settings: KillSettings, kills: int) -> KillReport:
    """Let a driver read all that is there, then look."""
    with _driver(settings, NEVER) as (child, log):
        code = child.wait(CHILD_TIMEOUT_S)
    if code != 0:
        raise PipelineError(f"the last driver ended with {code}:\n{log.read_text()[-2000:]}")
    sinks = check_sinks(
        settings.sinks, settings.data, settings.bootstrap, settings.pattern, settings.relay_topic
    )
    return KillReport(kills, sinks)


@contextmanager
def _driver(settings: KillSettings, point: str) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """A process group of its own: the JVM ends with the driver, whatever happens; workers with it."""
    command = [sys.executable, "-m", "kafkaesque.pipeline.killed_driver", "--point", point]
    for name in ("bootstrap", "pattern", "relay_topic", "data", "rows_max", "start", "engine"):
        command += [f"--{name.replace('_', '-')}", str(getattr(settings, name))]
    command += ["--master", settings.master, "--sinks", ",".join(settings.sinks)]
    if point == NEVER:
        command.append("--once")
    settings.data.mkdir(parents=True, exist_ok=True)
    log = settings.data / f"driver-{point}.log"
    with log.open("wb") as output:
        child = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            yield child, log
        finally:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()


def _watched(settings: KillSettings, point: str) -> Callable[[], Any]:
    """The files whose increase is the point."""
    places = settings.places
    if point == "planned":
        return lambda: places.checkpoint(ARCHIVE).glob("offsets/[0-9]*")
    directory = parquet_directory(places)
    if point == "parquet-written":
        return lambda: directory.glob("*.parquet")
    return lambda: directory.glob(f"{METADATA}/[0-9]*")


def _wait_at_random(
    child: subprocess.Popen[bytes], settings: KillSettings, chance: random.Random
) -> None:
    if chance.random() < START_SHARE:
        with suppress(subprocess.TimeoutExpired):
            child.wait(chance.uniform(0, START_DELAY_S_MAX))
        return
    first = next((name for name in settings.sinks if name != PARQUET), ARCHIVE)
    feed = settings.places.feed(first)
    size_before = feed.stat().st_size if feed.exists() else 0
    _wait(child, lambda: feed.exists() and feed.stat().st_size > size_before)
    with suppress(subprocess.TimeoutExpired):
        child.wait(chance.uniform(0, RANDOM_DELAY_S_MAX))


def _wait(child: subprocess.Popen[bytes], is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + CHILD_TIMEOUT_S
    while not is_so() and child.poll() is None:
        if time.monotonic() > deadline:
            raise PipelineError("the driver did not come to its point in time")
        time.sleep(_POLL_S)
