"""SIGSTOP and SIGCONT: the broker is gone and comes back with everything it had in its hands."""

from __future__ import annotations

import time

from kafkaesque.lab.faults.stage import FaultRun, Stage

_PAUSE_S_MIN = 0.3
_PAUSE_S_MAX = 4.0


class Run(FaultRun):
    purpose = "stop the broker in its tracks for up to 4 s and let it go on"
    promise = "nothing acknowledged is lost, repeated or reordered"

    def inject(self, stage: Stage) -> None:
        while stage.another_round(0.5, 2.0):
            node = stage.random.choice(stage.target.nodes)
            seconds = stage.random.uniform(_PAUSE_S_MIN, _PAUSE_S_MAX)
            stage.fault(f"pause node {node} for {seconds:.1f} s")
            stage.target.pause(node)
            time.sleep(seconds)
            stage.target.resume(node)
            stage.count("pauses")
