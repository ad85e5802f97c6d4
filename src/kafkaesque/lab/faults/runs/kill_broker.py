"""kill -9 and restart, again and again, under load."""

from __future__ import annotations

from kafkaesque.lab.faults.stage import FaultRun, Stage


class Run(FaultRun):
    purpose = "kill -9 and restart the broker, again and again"
    promise = "nothing acknowledged is lost, repeated or reordered"

    def inject(self, stage: Stage) -> None:
        while stage.another_round(0.3, 2.0):
            node = stage.random.choice(stage.target.nodes)
            stage.fault(f"kill -9 node {node}")
            stage.target.kill(node)
            stage.target.start(node)
            stage.count("kills")
