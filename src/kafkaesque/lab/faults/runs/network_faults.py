"""Runs that cut links between brokers. Clients reach every broker all the time.

In each cut a majority of brokers still reach each other in both directions, so a leader must serve
before the links are restored.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from kafkaesque.lab.faults.cluster_run import ClusterRun
from kafkaesque.lab.faults.fault_run import FaultRunContext
from kafkaesque.lab.harness import namespaces
from kafkaesque.lab.harness.cluster import BrokerCluster, BrokerSettings
from kafkaesque.lab.harness.namespaces import NamespaceNetwork

_CUT_S: Final = (3.0, 6.0)
"""At least the time in which a silent broker is declared dead and a new leader elected."""


class LinkCut(NamedTuple):
    """Links that lose all packets."""

    text: str
    links: Iterable[tuple[int, int]]
    """(source, target)"""


class _PartitionRun(ClusterRun):
    network: NamespaceNetwork

    def impossible(self) -> str | None:
        return namespaces.impossible()

    def new_cluster(self, directory: Path, settings: BrokerSettings) -> BrokerCluster:
        self.network = NamespaceNetwork(self.brokers)
        # Plaintext is safe here: the addresses are on a bridge that nothing else is connected to.
        return BrokerCluster(
            directory, {**settings, "insecure": True}, count=self.brokers, network=self.network
        )

    @abstractmethod
    def choose(self, context: FaultRunContext, leader: int) -> LinkCut:
        """The links to cut this time; `leader` leads some partition."""

    def inject(self, context: FaultRunContext) -> None:
        while context.another_round(0.5, 1.5):
            leader = self.leader_of_some_key(context)
            keys = self.keys_led_by(context, [leader])
            cut = self.choose(context, leader)
            seconds = context.random.uniform(*_CUT_S)
            healed_at = time.monotonic() + seconds
            context.fault(f"{cut.text}, for {seconds:.1f} s; node {leader} leads keys {keys}", keys)
            for source, target in cut.links:
                self.network.cut(source, target)
            context.count("partitions")
            epoch = self._highest_epoch()
            self.wait_until_served(context)
            time.sleep(max(0.0, healed_at - time.monotonic()))
            self.network.heal()
            self.cluster.wait_recovered()
            self.wait_until_served(context)
            context.highest("elections_in_one_partition_max", self._highest_epoch() - epoch)

    def _highest_epoch(self) -> int:
        """The highest leader epoch of all partitions; every election raises its partition's by one."""
        return max(partition.epoch for partition in self.cluster.partitions().values())


class PartitionOneWay(_PartitionRun):
    purpose = "cut what a leader sends, what it receives, or one direction of one link"
    promise = "some broker serves before the links heal; nothing is lost, repeated or reordered"

    def choose(self, context: FaultRunContext, leader: int) -> LinkCut:
        others = [node for node in self.cluster.nodes if node != leader]
        match context.random.choice(["deaf", "mute", "link"]):
            case "deaf":
                links = [(other, leader) for other in others]
                return LinkCut(f"no other node reaches node {leader}", links)
            case "mute":
                links = [(leader, other) for other in others]
                return LinkCut(f"node {leader} reaches no other node", links)
            case _:
                pair = [leader, context.random.choice(others)]
                context.random.shuffle(pair)
                source, target = pair
                return LinkCut(f"node {source} does not reach node {target}", [(source, target)])


class PartitionTwoWay(_PartitionRun):
    purpose = "cut a leader, a follower, or one link between two brokers, both ways"
    promise = "a majority serves, a minority acknowledges nothing; nothing is lost or repeated"

    def choose(self, context: FaultRunContext, leader: int) -> LinkCut:
        others = [node for node in self.cluster.nodes if node != leader]
        match context.random.choice(["leader", "follower", "link"]):
            case "leader":
                return self._isolate(leader, "the leader")
            case "follower":
                return self._isolate(context.random.choice(others), "a follower")
            case _:
                node = context.random.choice(others)
                links = [(leader, node), (node, leader)]
                return LinkCut(f"cut the link between nodes {leader} and {node}", links)

    def _isolate(self, node: int, role: str) -> LinkCut:
        others = [other for other in self.cluster.nodes if other != node]
        links = [pair for other in others for pair in ((node, other), (other, node))]
        return LinkCut(f"isolate node {node}, {role}", links)
