"""Kills the pipeline's driver with kill -9 at named points around a commit and at random moments,
restarts it, and compares every sink with the log: no record may be missing or duplicated.

Needs only the address of a Kafka cluster and a directory. The driver (`driver.py`) is a separate
process with its own JVM and Python workers.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kafkaesque.lab.faults.pipeline.driver import (
    ARCHIVE,
    PARQUET,
    SELF_POINTS,
    SINKS,
    parquet_directory,
)
from kafkaesque.lab.faults.pipeline.sinks import SinkReport, check_sinks
from kafkaesque.pipeline.errors import PipelineError
from kafkaesque.pipeline.paths import PipelineDirectory
from kafkaesque.pipeline.sinks.parquet_files import METADATA
from kafkaesque.testing.waiting import poll_until

RANDOM: Final = "random"
NEVER: Final = "never"
WATCHED_POINTS: Final = ("planned", "parquet-written", "parquet-committed")
"""Points that are visible from outside, as new files: a batch is planned in the checkpoint; Parquet
files are written but no batch names them; the sink names them but Spark has not committed the batch."""
POINTS: Final = ("planned", *SELF_POINTS, "parquet-written", "parquet-committed")

CHILD_TIMEOUT_S: Final = 900.0
"""A driver starts in half a minute on an idle machine and in many minutes on a busy one."""
RANDOM_DELAY_S_MAX: Final = 4.0
START_SHARE: Final = 0.25
"""The share of random kills that hit a driver before it has finished a batch."""
START_DELAY_S_MAX: Final = 15.0
_POLL_S: Final = 0.005


@dataclass(frozen=True, slots=True)
class KillSettings:
    """The addresses, directories and command line of a driver."""

    bootstrap: str
    pattern: str
    directory: Path
    relay_topic: str = "relay.out"
    rows_max: int = 500
    start: str = "earliest"
    engine: str = "python"
    master: str = "local[2]"
    sinks: Sequence[str] = SINKS

    @property
    def data(self) -> PipelineDirectory:
        return PipelineDirectory(self.directory)


@dataclass(frozen=True, slots=True)
class KillReport:
    """The state of every sink after all kills and one undisturbed run."""

    kills: int
    sinks: Sequence[SinkReport]

    @property
    def missing(self) -> int:
        return sum(sink.missing for sink in self.sinks)

    @property
    def doubled(self) -> int:
        return sum(sink.doubled + sink.foreign for sink in self.sinks)


def run_kills(settings: KillSettings, points: Sequence[str], chance: random.Random) -> KillReport:
    """Kills one driver at each point, then lets a last one run undisturbed."""
    for point in points:
        kill_at(settings, point, chance)
    return finish(settings, len(points))


def kill_at(settings: KillSettings, point: str, chance: random.Random) -> None:
    """Starts a driver and kills it at `point`. The topic must hold records it has not written yet.

    Raises PipelineError if the driver ended by itself instead.
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
            f"the driver was not killed at '{point}' but exited with {code}:\n{log.read_text()[-2000:]}"
        )


def finish(settings: KillSettings, kills: int) -> KillReport:
    """Lets a driver read to the end of the log, then checks every sink."""
    with _driver(settings, NEVER) as (child, log):
        code = child.wait(CHILD_TIMEOUT_S)
    if code != 0:
        raise PipelineError(f"the last driver exited with {code}:\n{log.read_text()[-2000:]}")
    sinks = check_sinks(
        settings.sinks,
        settings.data,
        settings.bootstrap,
        settings.pattern,
        settings.relay_topic,
    )
    return KillReport(kills, sinks)


@contextmanager
def _driver(settings: KillSettings, point: str) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """A driver in its own process group, so that its JVM and workers are killed with it."""
    command = [sys.executable, "-m", "kafkaesque.lab.faults.pipeline.driver", "--point", point]
    for name in ("bootstrap", "pattern", "relay_topic", "rows_max", "start", "engine"):
        command += [f"--{name.replace('_', '-')}", str(getattr(settings, name))]
    command += [
        "--data",
        str(settings.directory),
        "--master",
        settings.master,
        "--sinks",
        ",".join(settings.sinks),
    ]
    if point == NEVER:
        command.append("--once")
    settings.directory.mkdir(parents=True, exist_ok=True)
    log = settings.directory / f"driver-{point}.log"
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
    """Lists the files among which a new one marks the point."""
    data = settings.data
    if point == "planned":
        return lambda: data.checkpoint(ARCHIVE).glob("offsets/[0-9]*")
    directory = parquet_directory(data)
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
    feed = settings.data.feed(first)
    size_before = feed.stat().st_size if feed.exists() else 0
    _wait(child, lambda: feed.exists() and feed.stat().st_size > size_before)
    with suppress(subprocess.TimeoutExpired):
        child.wait(chance.uniform(0, RANDOM_DELAY_S_MAX))


def _wait(child: subprocess.Popen[bytes], is_reached: Callable[[], bool]) -> None:
    """Wait until the point is reached, or the driver has ended."""
    poll_until(
        lambda: is_reached() or child.poll() is not None,
        "the driver reaches its point",
        CHILD_TIMEOUT_S,
        poll_s=_POLL_S,
        error=PipelineError,
    )
