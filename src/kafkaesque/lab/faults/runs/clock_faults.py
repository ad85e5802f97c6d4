"""Runs in which wall clocks jump and strobe. Only monotonic time may decide anything."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from kafkaesque.lab.faults import shims
from kafkaesque.lab.faults.cluster_run import ShimmedRun
from kafkaesque.lab.faults.fault_run import FaultRun, FaultRunContext
from kafkaesque.lab.faults.shims import NumberShim, clock_shim
from kafkaesque.lab.harness.cluster import BrokerSettings, SingleBroker, Target

HOUR_NS: Final = 3_600_000_000_000
JUMPS_NS: Final = (HOUR_NS, -2 * HOUR_NS, 2 * HOUR_NS, -HOUR_NS, 0)
_STROBES: Final = 40
_STROBE_S: Final = 0.025
_LONG_MAX: Final = 2**63 - 1

CLOCK_SETTINGS: Final[BrokerSettings] = {
    # Retention runs often, and no jump is as long as the 4 h after which it deletes.
    "log.retention.ms": 4 * 3_600_000,
    "log.retention.check.interval.ms": 200,
    # Kafka's default would refuse records whose timestamps a slow clock sees in the future.
    "log.message.timestamp.after.max.ms": _LONG_MAX,
}


class SingleClockJump(FaultRun):
    purpose = "move the broker's wall clock by hours, both ways, and strobe it"
    promise = "no record is deleted, lost, repeated or reordered: only monotonic time decides"
    settings = CLOCK_SETTINGS
    _clock: NumberShim

    def impossible(self) -> str | None:
        return shims.impossible()

    @contextmanager
    def open_target(self, directory: Path, settings: BrokerSettings) -> Iterator[Target]:
        self._clock = clock_shim(directory, 0)
        with closing(SingleBroker(directory, settings, self._clock.environment)) as target:
            yield target

    def inject(self, context: FaultRunContext) -> None:
        while context.another_round(0.5, 2.0):
            _disturb(context, [self._clock], "the clock")
        self._clock.set(0)


class ClockJump(ShimmedRun[NumberShim]):
    purpose = "move the wall clock of one broker or of all by hours, both ways, and strobe it"
    promise = "it causes no election; nothing is deleted, lost, repeated or reordered"
    settings = CLOCK_SETTINGS

    def new_shim(self, directory: Path, node: int) -> NumberShim:
        return clock_shim(directory / "clocks", node)

    def inject(self, context: FaultRunContext) -> None:
        before = self._epochs()
        while context.another_round(0.5, 2.0):
            if context.random.random() < 0.5:
                _disturb(context, self.shims, "every clock")
            else:
                node = context.random.choice(self.cluster.nodes)
                _disturb(context, [self.shims[node]], f"the clock of node {node}")
        context.notes["elections"] = self._epochs() - before
        for clock in self.shims:
            clock.set(0)

    def _epochs(self) -> int:
        return sum(partition.epoch for partition in self.cluster.partitions().values())

    def complaints(self, context: FaultRunContext) -> list[str]:
        found = super().complaints(context)
        if context.notes["elections"]:
            found.append(f"clock jumps caused {context.notes['elections']} election(s)")
        return found


def _disturb(context: FaultRunContext, clocks: list[NumberShim], what: str) -> None:
    """Strobe the clocks for a second, or shift each of them by hours."""
    if context.random.random() < 0.25:
        context.fault(f"strobe {what} by up to 2 h for 1 s")
        for _ in range(_STROBES):
            for clock in clocks:
                clock.set(context.random.randint(-2 * HOUR_NS, 2 * HOUR_NS))
            time.sleep(_STROBE_S)
        context.count("strobes")
        return
    shift_ns = context.random.choice(JUMPS_NS)
    context.fault(f"{what} is {shift_ns // HOUR_NS:+d} h off")
    for clock in clocks:
        clock.set(shift_ns)
    context.count("jumps")
