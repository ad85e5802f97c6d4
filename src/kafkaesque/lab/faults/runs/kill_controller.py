"""kill -9 of the controller; how long nobody can change the cluster."""

from __future__ import annotations

import time

from kafkaesque.lab.faults.cluster_run import ClusterRun
from kafkaesque.lab.faults.stage import Stage


class Run(ClusterRun):
    purpose = "kill -9 the controller, have a topic created meanwhile, start it again"
    promise = "another one takes over; nothing acknowledged is lost, repeated or reordered"

    def inject(self, stage: Stage) -> None:
        while stage.another_round(0.5, 1.5):
            node = self.cluster.controller
            keys = self.keys_led_by(stage, [node])
            stage.fault(f"kill -9 node {node}, the controller", keys)
            self.cluster.kill(node)
            stage.count("kills")
            killed_at = time.monotonic()
            stage.workload.create_topic(f"during-{stage.rounds_done}")
            stage.highest("create_topic_ms_max", int((time.monotonic() - killed_at) * 1000))
            self.wait_until_served(stage, keys)
            self.cluster.start(node)
            self.cluster.wait_whole()
