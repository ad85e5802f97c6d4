"""A broker's disk is gone: it comes back empty, as a new member, and gets everything from the others."""

from __future__ import annotations

import time

from kafkaesque.lab.faults.cluster_run import ClusterRun
from kafkaesque.lab.faults.segments import segment_paths
from kafkaesque.lab.faults.stage import Stage


class Run(ClusterRun):
    purpose = "kill -9 a broker, remove all its data, and start it again"
    promise = "it votes only when it has caught up; nothing acknowledged is lost or repeated"

    def inject(self, stage: Stage) -> None:
        while stage.another_round(1.0, 2.0):
            node = stage.random.choice(self.cluster.nodes)
            keys = self.keys_led_by(stage, [node])
            stage.fault(f"kill -9 node {node} and wipe its disk", keys)
            self.cluster.kill(node)
            self.cluster.wipe(node)
            stage.count("wipes")
            self.wait_until_served(stage, keys)
            started_at = time.monotonic()
            self.cluster.start(node)
            self.cluster.wait_whole()
            stage.highest("whole_again_ms_max", int((time.monotonic() - started_at) * 1000))
            size_bytes = sum(path.stat().st_size for path in segment_paths(self.cluster.data(node)))
            stage.highest("bytes_refetched_max", size_bytes)
