"""kill -9 of a broker that leads, again and again, under load."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kafkaesque.lab.faults.checks.figures import gaps_of_faults, percentile
from kafkaesque.lab.faults.cluster_run import ClusterRun
from kafkaesque.lab.faults.stage import Stage

_GOAL_MS_P50: Final = 600
_GOAL_MS_P99: Final = 1500
_GAP_MS_MAX: Final = 10_000
"""What Apache Kafka takes by its defaults, where nobody is told that a broker died."""
_STALLS_IN_A_GAP: Final = 10
"""A failover is about so many turns of several processes, each of which a busy machine may hold up as
long as it did ours."""


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

    def complaints(self, stage: Stage) -> list[str]:
        sending = [operation for operation in stage.workload.operations() if operation.sends]
        gaps_ms = gaps_of_faults(sending, stage.faults)
        stage.notes["gap_goal"] = gap_goal(gaps_ms)
        own_stall_ms = int(stage.notes.get("own_stall_ms_max", 0))
        return super().complaints(stage) + judge_gaps(gaps_ms, own_stall_ms)


def gap_goal(gaps_ms: Sequence[int]) -> str:
    """A figure, and no failure: it says as much of the machine as of the brokers."""
    is_met = percentile(gaps_ms, 0.5) < _GOAL_MS_P50 and percentile(gaps_ms, 0.99) < _GOAL_MS_P99
    wanted = f"p50 below {_GOAL_MS_P50} ms and p99 below {_GOAL_MS_P99} ms"
    return f"{'met' if is_met else 'MISSED'} ({wanted})"


def judge_gaps(gaps_ms: Sequence[int], own_stall_ms: int) -> list[str]:
    """Gaps that no busy machine explains: nobody took over until a time limit of some client."""
    allowed_ms = _GAP_MS_MAX + _STALLS_IN_A_GAP * own_stall_ms
    too_long = [gap_ms for gap_ms in gaps_ms if gap_ms > allowed_ms]
    if not too_long:
        return []
    return [
        f"{len(too_long)} of {len(gaps_ms)} kills were followed by more than {allowed_ms} ms "
        f"without service, the longest by {max(too_long)} ms"
    ]
