"""Partitions move between four brokers while they are written and read; now and then one dies."""

from __future__ import annotations

import contextlib
import time
from typing import Final

from kafkaesque.lab.faults.cluster_run import ClusterRun
from kafkaesque.lab.faults.cluster_target import BROKERS
from kafkaesque.lab.faults.stage import Stage

_KILL_SHARE: Final = 0.25


class Run(ClusterRun):
    purpose = "move partitions to other brokers of four, sometimes killing one meanwhile"
    promise = "every move ends, and nothing acknowledged is lost, repeated or reordered"
    brokers = BROKERS + 1

    def inject(self, stage: Stage) -> None:
        partitions = stage.workload.partitions
        while stage.another_round(0.2, 0.6):
            key = stage.random.choice(partitions.keys)
            place = partitions.place(key)
            before = self.cluster.partitions()[place]
            target = stage.random.sample(list(self.cluster.nodes), BROKERS)
            stage.fault(f"move key {key} from {list(before.replicas)} to {target}", [key])
            began_at = time.monotonic()
            with contextlib.closing(self.cluster.asker(self.cluster.awake[0], 15.0)) as asker:
                refused = asker.reassign(place, target)
            if refused is not None:
                stage.count("refused")
                stage.say(f"refused: {refused}")
                continue
            stage.count("moves")
            if stage.random.random() < _KILL_SHARE:
                self._kill_one(stage)
            self.cluster.wait_for(
                f"the end of the move of key {key} to {target}",
                lambda place=place, target=target: self._is_moved(place, target),  # type: ignore[misc]
            )
            stage.highest("move_ms_max", int((time.monotonic() - began_at) * 1000))

    def _kill_one(self, stage: Stage) -> None:
        node = stage.random.choice(self.cluster.nodes)
        stage.say(f"kill -9 node {node} during the move")
        self.cluster.kill(node)
        self.cluster.start(node)
        stage.count("kills")

    def _is_moved(self, place: tuple[str, int], target: list[int]) -> bool | None:
        with (
            contextlib.closing(self.cluster.asker(self.cluster.awake[0])) as asker,
            contextlib.suppress(OSError),
        ):
            if asker.reassigning() == 0:
                seen = self.cluster.partitions()[place]
                return set(seen.replicas) == set(seen.in_sync) == set(target) or None
        return None
