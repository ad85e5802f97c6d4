"""kill -9 of a broker that leads, again and again, under load."""

from __future__ import annotations

from kafkaesque.faults.cluster_run import ClusterRun
from kafkaesque.faults.stage import Stage


class Run(ClusterRun):
    purpose = "kill -9 the broker that leads a partition, and start it again once others serve"
    promise = "another leads within a moment; nothing acknowledged is lost, repeated or reordered"
    rounds = 50

    def inject(self, stage: Stage) -> None:
        while stage.another_round(0.5, 1.5):
            node = self.leader_of_some_key(stage)
            keys = self.keys_led_by(stage, [node])
            stage.fault(f"kill -9 node {node}, which leads keys {keys}", keys)
            self.cluster.kill(node)
            stage.count("kills")
            self.wait_until_served(stage, keys)
            self.cluster.start(node)
            self.cluster.wait_whole()
