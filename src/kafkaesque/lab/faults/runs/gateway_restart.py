"""Planned restarts of gateways under load: a new process takes listener and connections over."""

from __future__ import annotations

import contextlib
import time
from typing import Final

from kafkaesque.lab.faults.runs.chat_processes import gateway_process
from kafkaesque.lab.faults.runs.chat_run import ChatRun
from kafkaesque.lab.faults.runs.service_process import ServiceProcess
from kafkaesque.lab.faults.stage import Stage
from kafkaesque.lab.faults.target import TargetUnwell

_END_S: Final = 60.0
_POLL_S: Final = 0.05


class Run(ChatRun):
    purpose = "restart gateways under their clients by handing over listener and connections"
    promise = "no client is disconnected; no message is lost, doubled or out of order"
    rounds = 5

    def inject(self, stage: Stage) -> None:
        while stage.another_round(1.0, 3.0):
            number = stage.rounds_done % len(self.gateways)
            old = self.gateways[number]
            self.note_fault(stage, f"take over {old.name}")
            self.gateways[number] = self._succeed(stage, old)
            stage.count("hand_overs")

    def _succeed(self, stage: Stage, old: ServiceProcess) -> ServiceProcess:
        successor = gateway_process(
            stage.target.bootstrap_servers, old.name, self.directory, old.facts["tcp"],
            *self.gateway_settings(),
        )  # fmt: skip
        successor.launch("--take-over")
        successor.wait_ready()
        deadline_s = time.monotonic() + _END_S
        while old.is_running:
            if time.monotonic() >= deadline_s:
                raise TargetUnwell(f"{old.name} did not end after it was taken over")
            time.sleep(_POLL_S)
        # It has ended by itself; only its pipes are left to close.
        with contextlib.suppress(ProcessLookupError):
            old.kill()
        return successor
