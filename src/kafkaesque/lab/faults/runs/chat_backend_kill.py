"""kill -9 of chat back ends at random moments, while a thousand clients talk."""

from __future__ import annotations

from kafkaesque.lab.faults.runs.chat_run import ChatRun
from kafkaesque.lab.faults.stage import Stage


class Run(ChatRun):
    purpose = "kill -9 and restart chat back ends under connected clients, again and again"
    promise = "no client is disconnected; no message is lost, doubled or out of order"
    rounds = 20

    def inject(self, stage: Stage) -> None:
        while stage.another_round(1.0, 3.0):
            victim = stage.random.choice(self.backends)
            self.note_fault(stage, f"kill -9 {victim.name}")
            victim.kill()
            stage.count("kills")
            victim.start()
