"""Links between brokers are cut both ways: one broker alone, or a ring in which nobody hears all."""

from __future__ import annotations

from kafkaesque.lab.faults.partition_run import Cut, PartitionRun
from kafkaesque.lab.faults.stage import Stage


class Run(PartitionRun):
    purpose = "cut a leader, a follower, or one link between two brokers, both ways"
    promise = "a majority goes on, a minority acknowledges nothing; nothing is lost or repeated"

    def choose(self, stage: Stage, leader: int) -> Cut:
        others = [node for node in self.cluster.nodes if node != leader]
        match stage.random.choice(["leader", "follower", "link"]):
            case "leader":
                return _alone(leader, others, "the leader")
            case "follower":
                node = stage.random.choice(others)
                return _alone(node, [n for n in self.cluster.nodes if n != node], "a follower")
            case _:
                node = stage.random.choice(others)
                links = [(leader, node), (node, leader)]
                return Cut(f"cut the link of nodes {leader} and {node}", links)


def _alone(node: int, others: list[int], what: str) -> Cut:
    links = [pair for other in others for pair in ((node, other), (other, node))]
    return Cut(f"cut node {node} off, {what}", links)
