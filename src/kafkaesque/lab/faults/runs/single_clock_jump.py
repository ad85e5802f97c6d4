"""The wall clock jumps and shakes; only time that does not jump may decide anything."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

from kafkaesque.lab.faults import shims
from kafkaesque.lab.faults.shims.levers import Lever, clock_lever
from kafkaesque.lab.faults.stage import FaultRun, Stage
from kafkaesque.lab.faults.target import SingleBroker, Target

HOUR_NS = 3_600_000_000_000
JUMPS_NS = (HOUR_NS, -2 * HOUR_NS, 2 * HOUR_NS, -HOUR_NS, 0)
_STROBES = 40
_STROBE_S = 0.025
_LONG_MAX = 2**63 - 1

CLOCK_SETTINGS: Mapping[str, object] = {
    # Retention looks often and is near: 4 h is more than any jump is away from the truth.
    "log.retention.ms": 4 * 3_600_000,
    "log.retention.check.interval.ms": 200,
    # Kafka's own rule would refuse records that a clock set back sees in the future.
    "log.message.timestamp.after.max.ms": _LONG_MAX,
}


class Run(FaultRun):
    purpose = "move the broker's wall clock by hours, both ways, and shake it"
    promise = "no record is deleted, lost, repeated or reordered: only monotonic time decides"
    settings = CLOCK_SETTINGS
    _lever: Lever

    def impossible(self) -> str | None:
        return shims.impossible()

    @contextmanager
    def open_target(self, directory: Path, settings: Mapping[str, object]) -> Iterator[Target]:
        self._lever = clock_lever(directory, 0)
        with closing(SingleBroker(directory, settings, self._lever.environment)) as target:
            yield target

    def inject(self, stage: Stage) -> None:
        while stage.another_round(0.5, 2.0):
            disturb(stage, [self._lever], "the clock")
        self._lever.set(0)


def disturb(stage: Stage, levers: list[Lever], what: str) -> None:
    """Shake the clocks for a second, or leave each of them off by hours."""
    if stage.random.random() < 0.25:
        stage.fault(f"shake {what} by up to 2 h for 1 s")
        for _ in range(_STROBES):
            for lever in levers:
                lever.set(stage.random.randint(-2 * HOUR_NS, 2 * HOUR_NS))
            time.sleep(_STROBE_S)
        stage.count("strobes")
        return
    shift_ns = stage.random.choice(JUMPS_NS)
    stage.fault(f"{what} is {shift_ns // HOUR_NS:+d} h off")
    for lever in levers:
        lever.set(shift_ns)
    stage.count("jumps")
