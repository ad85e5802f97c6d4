"""Chat back ends replaced one after the other under load: stopped in order, a new build started."""

from __future__ import annotations

from kafkaesque.faults.runs.chat_processes import backend_process
from kafkaesque.faults.runs.chat_run import ChatRun
from kafkaesque.faults.stage import Stage


class Run(ChatRun):
    purpose = (
        "replace every chat back end by a new process under connected clients, again and again"
    )
    promise = "no client is disconnected; no message is lost, doubled or out of order"
    rounds = 3

    def backend_settings(self, name: str) -> tuple[str, ...]:
        # Nobody comes back under an old name here: whoever leaves tells the group.
        return ("session.timeout.ms=6000",)

    def inject(self, stage: Stage) -> None:
        bootstrap = stage.target.bootstrap_servers
        build = 1
        while stage.another_round(1.0, 2.0):
            build += 1
            for number, old in enumerate(list(self.backends)):
                name = f"b{number}-build{build}"
                new = backend_process(bootstrap, name, self.directory, *self.backend_settings(name))
                self.note_fault(stage, f"{old.name} gives way to {name}")
                new.start()
                if old.stop() != 0:
                    stage.count("unclean_exits")
                self.backends[number] = new
                stage.count("upgrades")

    def complaints(self, stage: Stage) -> list[str]:
        found = super().complaints(stage)
        if stage.notes.get("unclean_exits"):
            found.append(f"{stage.notes['unclean_exits']} stop(s) ended with an exit code above 0")
        return found
