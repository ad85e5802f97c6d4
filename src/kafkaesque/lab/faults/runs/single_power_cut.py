"""The power goes: kill -9, and then everything that was not synced may be gone."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

from kafkaesque.lab.faults import shims
from kafkaesque.lab.faults.power_shim import PoweredDisk
from kafkaesque.lab.faults.stage import FaultRun, Stage
from kafkaesque.lab.faults.target import SingleBroker, Target


class Run(FaultRun):
    purpose = "cut the power: unsynced bytes and names are lost, garbled or come back older"
    promise = "nothing acknowledged is lost; with flush=never some is, which shows the cut works"
    control: Mapping[str, object] | None = {"flush": "never"}
    _disk: PoweredDisk

    def impossible(self) -> str | None:
        return shims.impossible()

    @contextmanager
    def open_target(self, directory: Path, settings: Mapping[str, object]) -> Iterator[Target]:
        self._disk = PoweredDisk(directory / "data", directory / "power")
        with closing(SingleBroker(directory, settings, self._disk.environment)) as target:
            yield target

    def inject(self, stage: Stage) -> None:
        while stage.another_round(0.3, 2.0):
            node = stage.random.choice(stage.target.nodes)
            if stage.random.random() < 0.2:
                # So that what a clean stop leaves behind is met by a cut as well.
                stage.fault(f"stop and start node {node} in order")
                stage.target.stop(node)
                stage.target.start(node)
                time.sleep(stage.random.uniform(0.0, 0.2))
            stage.fault(f"power cut of node {node}")
            stage.target.kill(node)
            cut(stage, self._disk)
            stage.target.start(node)

    def complaints(self, stage: Stage) -> list[str]:
        return [] if stage.notes.get("syncs_seen") else ["the shim saw no sync: it is not in place"]


def cut(stage: Stage, disk: PoweredDisk) -> None:
    """Take the unsynced from `disk`, and count it."""
    before = disk.syncs_seen
    losses = disk.cut(stage.random)
    stage.count("cuts")
    stage.count("syncs_seen", disk.syncs_seen - before)
    stage.count("bytes_lost", losses.bytes_lost)
    stage.count("bytes_garbled", losses.bytes_garbled)
    stage.count("names_undone", losses.names_undone)
