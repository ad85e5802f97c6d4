"""kill -9 of all brokers at once; how long until the first record is acknowledged again."""

from __future__ import annotations

import time

from kafkaesque.lab.faults.cluster_run import ClusterRun
from kafkaesque.lab.faults.stage import Stage


class Run(ClusterRun):
    purpose = "kill -9 all brokers at once, and start them together or one after the other"
    promise = "nothing acknowledged is lost, repeated or reordered, whoever comes back first"

    def inject(self, stage: Stage) -> None:
        nodes = list(self.cluster.nodes)
        while stage.another_round(0.5, 2.0):
            stage.random.shuffle(nodes)
            stage.fault("kill -9 all nodes")
            self.cluster.kill(*nodes)
            stage.count("kills", len(nodes))
            started_at = time.monotonic()
            if stage.random.random() < 0.5:
                stage.say(f"start nodes {nodes[0]} and {nodes[1]}, the last one later")
                self.cluster.start(*nodes[:2])
            self.cluster.start(*nodes)
            self.wait_until_served(stage, stage.workload.partitions.keys)
            stage.highest("served_after_start_ms_max", int((time.monotonic() - started_at) * 1000))
            self.cluster.wait_whole()
