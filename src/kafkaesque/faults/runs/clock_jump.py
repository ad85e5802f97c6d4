"""Wall clocks of one broker, or of all, jump and shake: no election, no deletion, no lost session."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kafkaesque.faults import shims
from kafkaesque.faults.cluster_run import ClusterRun
from kafkaesque.faults.cluster_target import ClusterTarget
from kafkaesque.faults.runs.single_clock_jump import CLOCK_SETTINGS, disturb
from kafkaesque.faults.shims.levers import Lever, clock_lever
from kafkaesque.faults.stage import Stage


class Run(ClusterRun):
    purpose = "move the wall clock of one broker or of all by hours, both ways, and shake it"
    promise = "no election comes of it; nothing is deleted, lost, repeated or reordered"
    settings = CLOCK_SETTINGS

    def __init__(self) -> None:
        super().__init__()
        self._levers: list[Lever] = []

    def impossible(self) -> str | None:
        return shims.impossible()

    def new_target(self, directory: Path, settings: Mapping[str, object]) -> ClusterTarget:
        self._levers = [clock_lever(directory / "clocks", node) for node in range(self.brokers)]
        return ClusterTarget(
            directory,
            settings,
            count=self.brokers,
            environment=lambda node: self._levers[node].environment,
        )

    def inject(self, stage: Stage) -> None:
        before = self._epochs()
        while stage.another_round(0.5, 2.0):
            if stage.random.random() < 0.5:
                disturb(stage, self._levers, "every clock")
            else:
                node = stage.random.choice(self.cluster.nodes)
                disturb(stage, [self._levers[node]], f"the clock of node {node}")
        stage.notes["elections"] = self._epochs() - before
        for lever in self._levers:
            lever.set(0)

    def _epochs(self) -> int:
        return sum(one.epoch for one in self.cluster.partitions().values())

    def complaints(self, stage: Stage) -> list[str]:
        found = super().complaints(stage)
        if stage.notes["elections"]:
            found.append(f"clocks that jumped caused {stage.notes['elections']} election(s)")
        return found
