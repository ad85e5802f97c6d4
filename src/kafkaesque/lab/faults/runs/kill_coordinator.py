"""kill -9 of the broker that coordinates the consumer group; how long the group stands still."""

from __future__ import annotations

import time
from typing import Final

from kafkaesque.lab.faults.cluster_run import ClusterRun
from kafkaesque.lab.faults.stage import Stage
from kafkaesque.lab.faults.target import TargetUnwell

_BACK_WITHIN_S: Final = 30.0
_POLL_S: Final = 0.01


class Run(ClusterRun):
    purpose = "kill -9 the coordinator of the consumer group, and start it again"
    promise = "the group goes on where it was; nothing acknowledged is lost, repeated or reordered"

    def inject(self, stage: Stage) -> None:
        while stage.another_round(0.5, 1.5):
            node = self.cluster.coordinator(stage.workload.group_id)
            keys = self.keys_led_by(stage, [node])
            stage.fault(f"kill -9 node {node}, the coordinator of the group", keys)
            committed = stage.workload.group_polls
            self.cluster.kill(node)
            stage.count("kills")
            self._wait_for_group(stage, committed)
            self.wait_until_served(stage, keys)
            self.cluster.start(node)
            self.cluster.wait_whole()

    def _wait_for_group(self, stage: Stage, before: int) -> None:
        """Until members have read something, and committed it, since the coordinator died. What
        was under way at its death may count once: two polls more show that there is another one."""
        killed_at = time.monotonic()
        while stage.workload.group_polls < before + 3:
            if time.monotonic() - killed_at > _BACK_WITHIN_S:
                raise TargetUnwell(f"the group stands still for {_BACK_WITHIN_S:g} s")
            time.sleep(_POLL_S)
        stage.highest("group_back_ms_max", int((time.monotonic() - killed_at) * 1000))
