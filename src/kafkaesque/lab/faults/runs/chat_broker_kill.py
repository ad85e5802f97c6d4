"""kill -9 of brokers of a cluster, while a thousand clients talk."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from kafkaesque.lab.faults.cluster_target import BROKERS, ClusterTarget
from kafkaesque.lab.faults.runs.chat_run import ChatRun
from kafkaesque.lab.faults.stage import Stage
from kafkaesque.lab.faults.target import Target


class Run(ChatRun):
    purpose = "kill -9 and restart brokers of a cluster under connected clients"
    promise = "no client is disconnected; no message is lost, doubled or out of order"
    brokers = BROKERS
    rounds = 5
    settings: Mapping[str, object] = MappingProxyType(
        {**ChatRun.settings, "default.replication.factor": BROKERS}
    )

    @contextlib.contextmanager
    def open_target(self, directory: Path, settings: Mapping[str, object]) -> Iterator[Target]:
        self._cluster = ClusterTarget(directory, settings, count=self.brokers)
        try:
            yield self._cluster
        finally:
            self._cluster.close()

    def inject(self, stage: Stage) -> None:
        while stage.another_round(2.0, 4.0):
            node = stage.random.choice(stage.target.nodes)
            self.note_fault(stage, f"kill -9 broker {node}")
            stage.target.kill(node)
            stage.count("kills")
            stage.target.start(node)
            self._cluster.wait_whole()
