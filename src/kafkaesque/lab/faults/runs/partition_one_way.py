"""Links between brokers are cut one way: a leader that is heard and hears nobody, and the reverse."""

from __future__ import annotations

from kafkaesque.lab.faults.partition_run import Cut, PartitionRun
from kafkaesque.lab.faults.stage import Stage


class Run(PartitionRun):
    purpose = "cut what a leader sends, what it hears, or one direction of one link"
    promise = "somebody serves before the links heal; nothing is lost, repeated or reordered"

    def choose(self, stage: Stage, leader: int) -> Cut:
        others = [node for node in self.cluster.nodes if node != leader]
        match stage.random.choice(["deaf", "dumb", "link"]):
            case "deaf":
                links = [(other, leader) for other in others]
                return Cut(f"node {leader} hears nobody", links)
            case "dumb":
                links = [(leader, other) for other in others]
                return Cut(f"nobody hears node {leader}", links)
            case _:
                pair = [leader, stage.random.choice(others)]
                stage.random.shuffle(pair)
                source, target = pair
                text = f"node {target} does not hear node {source}"
                return Cut(text, [(source, target)])
