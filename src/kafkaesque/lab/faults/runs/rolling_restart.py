"""SIGTERM and start, one broker after the other: an upgrade on a good day."""

from __future__ import annotations

import dataclasses
from typing import Final

from kafkaesque.lab.faults.checks.history import Function, Outcome
from kafkaesque.lab.faults.cluster_run import ClusterRun
from kafkaesque.lab.faults.runs.restart_clean import unclean_stops
from kafkaesque.lab.faults.stage import RunOptions, Stage
from kafkaesque.lab.faults.workload import WorkloadSettings

_NEVER_S: Final = 1e9


class Run(ClusterRun):
    purpose = "stop and start every broker in order, one after the other"
    promise = "no application sees an error; nothing needs recovery, nothing is lost or repeated"

    def workload(self, options: RunOptions) -> WorkloadSettings:
        # A client that dies has records of unknown outcome, and no broker's fault in that.
        # Nor is a reader that a busy machine keeps from its heartbeats: Kafka's default, then.
        settings = super().workload(options)
        return dataclasses.replace(settings, crash_every_s=_NEVER_S, session_timeout_ms=45_000)

    def inject(self, stage: Stage) -> None:
        while stage.another_round(0.5, 1.0):
            for node in self.cluster.nodes:
                keys = self.keys_led_by(stage, [node])
                stage.fault(f"stop node {node} in order, which leads keys {keys}", keys)
                if self.cluster.stop(node) != 0:
                    stage.count("unclean_exits")
                self.wait_until_served(stage, keys)
                self.cluster.start(node)
                self.cluster.wait_whole()
                stage.count("restarts")

    def complaints(self, stage: Stage) -> list[str]:
        found = super().complaints(stage)
        operations = stage.workload.operations()
        for f, what in ((Function.SEND, "records"), (Function.POLL, "polls and commits")):
            errors = [one for one in operations if one.f is f and one.outcome is not Outcome.OK]
            stage.notes[f"application_errors_{f}"] = len(errors)
            if errors:
                said = ", ".join(sorted({one.error for one in errors if one.error})) or "no reason"
                found.append(
                    f"{len(errors)} {what} ended with an error that the application saw: {said}"
                )
        return [*found, *unclean_stops(stage)]
