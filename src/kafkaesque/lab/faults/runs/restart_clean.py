"""SIGTERM and start again: what an operator does on a good day."""

from __future__ import annotations

from kafkaesque.lab.faults.stage import FaultRun, Stage


class Run(FaultRun):
    purpose = "stop the broker in order and start it again"
    promise = "clients notice a pause and nothing else; nothing needs recovery"

    def inject(self, stage: Stage) -> None:
        while stage.another_round(0.5, 2.0):
            node = stage.random.choice(stage.target.nodes)
            stage.fault(f"stop and start node {node}")
            code = stage.target.stop(node)
            stage.target.start(node)
            stage.count("restarts")
            if code != 0:
                stage.count("unclean_exits")

    def complaints(self, stage: Stage) -> list[str]:
        return unclean_stops(stage)


def unclean_stops(stage: Stage) -> list[str]:
    """Complaints about nodes that were stopped in order and did not take it so."""
    found = []
    if stage.notes.get("unclean_exits"):
        found.append(f"{stage.notes['unclean_exits']} stop(s) ended with an exit code above 0")
    for node in stage.target.nodes:
        if "not clean" in stage.target.log_text(node):
            found.append(f"node {node} had something to recover after a stop in order")
    return found
