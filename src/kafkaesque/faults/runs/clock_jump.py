"""The wall clock jumps and shakes; only time that does not jump may decide anything."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

from kafkaesque.faults import shims
from kafkaesque.faults.stage import FaultRun, Stage
from kafkaesque.faults.target import SingleBroker, Target

_HOUR_NS = 3_600_000_000_000
_JUMPS_NS = (_HOUR_NS, -2 * _HOUR_NS, 2 * _HOUR_NS, -_HOUR_NS, 0)
_STROBES = 40
_STROBE_S = 0.025
_LONG_MAX = 2**63 - 1


class Run(FaultRun):
    purpose = "move the broker's wall clock by hours, both ways, and shake it"
    promise = "no record is deleted, lost, repeated or reordered: only monotonic time decides"
    settings = {  # noqa: RUF012 (a Mapping, never changed)
        # Retention looks often and is near: 4 h is more than any jump is away from the truth.
        "log.retention.ms": 4 * 3_600_000,
        "log.retention.check.interval.ms": 200,
        # Kafka's own rule would refuse records that a clock set back sees in the future.
        "log.message.timestamp.after.max.ms": _LONG_MAX,
    }

    def __init__(self) -> None:
        self._file = Path()

    def impossible(self) -> str | None:
        return shims.impossible()

    @contextmanager
    def open_target(self, directory: Path, settings: Mapping[str, object]) -> Iterator[Target]:
        directory.mkdir(parents=True, exist_ok=True)
        self._file = directory / "clock"
        self._file.write_bytes(bytes(8))
        environment = {
            "LD_PRELOAD": str(shims.build("clock", directory)),
            "KAFKAESQUE_CLOCK": str(self._file),
        }
        with closing(SingleBroker(directory, settings, environment)) as target:
            yield target

    def _set(self, shift_ns: int) -> None:
        with self._file.open("r+b") as file:
            file.write(struct.pack("=q", shift_ns))

    def inject(self, stage: Stage) -> None:
        while stage.another_round(0.5, 2.0):
            if stage.random.random() < 0.25:
                stage.fault("shake the clock by up to 2 h for 1 s")
                for _ in range(_STROBES):
                    self._set(stage.random.randint(-2 * _HOUR_NS, 2 * _HOUR_NS))
                    time.sleep(_STROBE_S)
                stage.count("strobes")
                continue
            shift_ns = stage.random.choice(_JUMPS_NS)
            stage.fault(f"the clock is {shift_ns // _HOUR_NS:+d} h off")
            self._set(shift_ns)
            stage.count("jumps")
        self._set(0)
