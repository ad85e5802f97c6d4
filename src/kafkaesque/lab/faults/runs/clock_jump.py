"""Wall clocks of one broker, or of all, jump and shake: no election, no deletion, no lost session."""

from __future__ import annotations

from pathlib import Path

from kafkaesque.lab.faults.runs.shimmed_run import ShimmedRun
from kafkaesque.lab.faults.runs.single_clock_jump import CLOCK_SETTINGS, disturb
from kafkaesque.lab.faults.shims.levers import Lever, clock_lever
from kafkaesque.lab.faults.stage import Stage


class Run(ShimmedRun[Lever]):
    purpose = "move the wall clock of one broker or of all by hours, both ways, and shake it"
    promise = "no election comes of it; nothing is deleted, lost, repeated or reordered"
    settings = CLOCK_SETTINGS

    def new_device(self, directory: Path, node: int) -> Lever:
        return clock_lever(directory / "clocks", node)

    def inject(self, stage: Stage) -> None:
        before = self._epochs()
        while stage.another_round(0.5, 2.0):
            if stage.random.random() < 0.5:
                disturb(stage, self.devices, "every clock")
            else:
                node = stage.random.choice(self.cluster.nodes)
                disturb(stage, [self.devices[node]], f"the clock of node {node}")
        stage.notes["elections"] = self._epochs() - before
        for lever in self.devices:
            lever.set(0)

    def _epochs(self) -> int:
        return sum(one.epoch for one in self.cluster.partitions().values())

    def complaints(self, stage: Stage) -> list[str]:
        found = super().complaints(stage)
        if stage.notes["elections"]:
            found.append(f"clocks that jumped caused {stage.notes['elections']} election(s)")
        return found
