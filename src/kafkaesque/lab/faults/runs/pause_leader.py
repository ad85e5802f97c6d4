"""SIGSTOP of a leader until another one is elected, then SIGCONT: it wakes up believing it leads."""

from __future__ import annotations

import time
from typing import Final

from kafkaesque.lab.faults.cluster_run import ClusterRun
from kafkaesque.lab.faults.stage import Stage

_PAUSE_S_MIN: Final = 3.0
"""Twice the election timeout and more: another leader is there before the old one wakes up."""
_PAUSE_S_MAX: Final = 6.0


class Run(ClusterRun):
    purpose = "stop a leader in its tracks for longer than an election takes, and let it go on"
    promise = "it acknowledges and serves nothing stale; nothing is lost, repeated or reordered"

    def inject(self, stage: Stage) -> None:
        while stage.another_round(0.5, 1.5):
            node = self.leader_of_some_key(stage)
            keys = self.keys_led_by(stage, [node])
            seconds = stage.random.uniform(_PAUSE_S_MIN, _PAUSE_S_MAX)
            stage.fault(f"pause node {node} for {seconds:.1f} s, which leads keys {keys}", keys)
            resumed_at = time.monotonic() + seconds
            self.cluster.pause(node)
            stage.count("pauses")
            self.wait_until_served(stage, keys)
            time.sleep(max(0.0, resumed_at - time.monotonic()))
            self.cluster.resume(node)
            self.cluster.wait_whole()
