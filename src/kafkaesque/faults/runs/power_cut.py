"""The power of one, two or all brokers goes: what they had not synced may be gone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kafkaesque.faults import shims
from kafkaesque.faults.cluster_run import ClusterRun
from kafkaesque.faults.cluster_target import ClusterTarget
from kafkaesque.faults.power_shim import PoweredDisk
from kafkaesque.faults.runs.single_power_cut import cut
from kafkaesque.faults.stage import Stage


class Run(ClusterRun):
    purpose = "cut the power of one, two and all brokers: what was not synced is lost or garbled"
    promise = "nothing acknowledged is lost; with flush=never some is, which shows the cut works"
    control: Mapping[str, object] | None = {"flush": "never"}

    def __init__(self) -> None:
        super().__init__()
        self._disks: list[PoweredDisk] = []

    def impossible(self) -> str | None:
        return shims.impossible()

    def new_target(self, directory: Path, settings: Mapping[str, object]) -> ClusterTarget:
        self._disks = [
            PoweredDisk(directory / f"broker-{node}" / "data", directory / f"power-{node}")
            for node in range(self.brokers)
        ]
        return ClusterTarget(
            directory,
            settings,
            count=self.brokers,
            environment=lambda node: self._disks[node].environment,
        )

    def inject(self, stage: Stage) -> None:
        count = 0
        while stage.another_round(0.5, 2.0):
            # All of them first: where loss is permitted, only that must show it.
            count = count % self.brokers + 1
            nodes = stage.random.sample(list(self.cluster.nodes), self.brokers + 1 - count)
            keys = self.keys_led_by(stage, nodes)
            stage.fault(f"power cut of nodes {nodes}", keys)
            self.cluster.kill(*nodes)
            for node in nodes:
                cut(stage, self._disks[node])
            self.cluster.start(*nodes)
            self.cluster.wait_whole()

    def complaints(self, stage: Stage) -> list[str]:
        found = super().complaints(stage)
        if not stage.notes.get("syncs_seen"):
            found.append("the shim saw no sync: it is not in place")
        return found
