"""Base of the runs that cut links between brokers; clients reach all of them all the time."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from kafkaesque.lab.faults import namespaces
from kafkaesque.lab.faults.cluster_run import ClusterRun
from kafkaesque.lab.faults.cluster_target import ClusterTarget
from kafkaesque.lab.faults.namespaces import NamespaceNetwork
from kafkaesque.lab.faults.stage import Stage

_CUT_S_MIN: Final = 3.0
"""More than the silence after which a broker is taken for gone, and the election after that."""
_CUT_S_MAX: Final = 6.0


class Cut(NamedTuple):
    """What is lost. In each case a majority hears one another both ways, so somebody must serve."""

    text: str
    links: Iterable[tuple[int, int]]
    """(source, target)"""


class PartitionRun(ClusterRun):
    network: NamespaceNetwork

    def impossible(self) -> str | None:
        return namespaces.impossible()

    def new_target(self, directory: Path, settings: Mapping[str, object]) -> ClusterTarget:
        self.network = NamespaceNetwork(self.brokers)
        # Addresses of a bridge that nobody else is on.
        return ClusterTarget(
            directory, {**settings, "insecure": True}, count=self.brokers, network=self.network
        )

    @abstractmethod
    def choose(self, stage: Stage, leader: int) -> Cut:
        """What to cut this time; `leader` leads something."""

    def inject(self, stage: Stage) -> None:
        while stage.another_round(0.5, 1.5):
            leader = self.leader_of_some_key(stage)
            keys = self.keys_led_by(stage, [leader])
            cut = self.choose(stage, leader)
            seconds = stage.random.uniform(_CUT_S_MIN, _CUT_S_MAX)
            healed_at = time.monotonic() + seconds
            stage.fault(f"{cut.text}, for {seconds:.1f} s; node {leader} leads keys {keys}", keys)
            for source, target in cut.links:
                self.network.cut(source, target)
            stage.count("partitions")
            epochs = self._epochs()
            self.wait_until_served(stage, stage.workload.partitions.keys)
            time.sleep(max(0.0, healed_at - time.monotonic()))
            self.network.heal()
            self.cluster.wait_whole()
            self.wait_until_served(stage, stage.workload.partitions.keys)
            stage.highest("elections_in_one_partition_max", self._epochs() - epochs)

    def _epochs(self) -> int:
        """Rises by one with every election of any partition; the most that any has had counts."""
        return max(one.epoch for one in self.cluster.partitions().values())
