"""kill -9 of gateways at random moments, while a thousand clients talk through them."""

from __future__ import annotations

from kafkaesque.lab.faults.runs.chat_run import ChatRun
from kafkaesque.lab.faults.stage import Stage


class Run(ChatRun):
    purpose = "kill -9 a gateway under its clients, again and again, and start it anew"
    promise = "all clients resume on another gateway; no message is lost, doubled or out of order"
    keeps_connections = False
    rounds = 5

    def inject(self, stage: Stage) -> None:
        while stage.another_round(2.0, 5.0):
            victim = stage.random.choice(self.gateways)
            self.note_fault(stage, f"kill -9 {victim.name}")
            victim.kill()
            stage.count("kills")
            victim.start()
