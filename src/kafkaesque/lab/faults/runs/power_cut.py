"""The power of one, two or all brokers goes: what they had not synced may be gone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kafkaesque.lab.faults.power_shim import PoweredDisk
from kafkaesque.lab.faults.runs.shimmed_run import ShimmedRun
from kafkaesque.lab.faults.runs.single_power_cut import cut
from kafkaesque.lab.faults.stage import Stage


class Run(ShimmedRun[PoweredDisk]):
    purpose = "cut the power of one, two and all brokers: what was not synced is lost or garbled"
    promise = "nothing acknowledged is lost; with flush=never some is, which shows the cut works"
    control: Mapping[str, object] | None = {"flush": "never"}

    def new_device(self, directory: Path, node: int) -> PoweredDisk:
        return PoweredDisk(directory / f"broker-{node}" / "data", directory / f"power-{node}")

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
                cut(stage, self.devices[node])
            self.cluster.start(*nodes)
            self.cluster.wait_whole()

    def complaints(self, stage: Stage) -> list[str]:
        found = super().complaints(stage)
        if not stage.notes.get("syncs_seen"):
            found.append("the shim saw no sync: it is not in place")
        return found
