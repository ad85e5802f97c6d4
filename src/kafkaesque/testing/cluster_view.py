"""What the brokers of a test cluster see, put together, and waiting for it to be so.

How the brokers are asked is up to the cluster: `cluster.py` looks at them on their own event loops,
`cluster_processes.py` asks as any client does.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from kafkaesque.testing.cluster_layout import WITHIN_S, poll_until

if TYPE_CHECKING:
    from kafkaesque.broker.node import Node


class PartitionSeen(NamedTuple):
    """One partition as one broker knows it; epoch -1 if it has heard of no leader."""

    replicas: tuple[int, ...]
    epoch: int = -1
    revision: int = -1
    leader: int | None = None
    in_sync: tuple[int, ...] = ()


@dataclass(frozen=True)
class Sight:
    """What one broker sees."""

    controller: int | None
    term: int
    """Of that controller: of two the later counts. 0 if that is not known."""
    voters: frozenset[int]
    """The controller's group."""
    up: frozenset[int]
    """Brokers of the cluster that it hears, itself included."""
    topics: Mapping[str, tuple[PartitionSeen, ...]]


async def look(node: Node) -> Sight:
    from kafkaesque.model.ids import node_of

    cluster = node.context.cluster
    replica = cluster.journal.replica
    topics = {}
    for topic in cluster.tables.by_name.values():
        seen = []
        for assignment in topic.partitions:
            told = cluster.leaders.of(assignment.group_id)
            seen.append(
                PartitionSeen(assignment.all_replicas)
                if told is None
                else PartitionSeen(
                    assignment.all_replicas, told.epoch, told.revision, told.node_id, told.in_sync
                )
            )
        topics[topic.name] = tuple(seen)
    return Sight(
        controller=cluster.controller_id,
        term=replica.standing.term,
        voters=frozenset(node_of(member) for member in replica.membership.voters),
        up=frozenset(cluster.live_nodes()),
        topics=topics,
    )


@dataclass(frozen=True)
class View:
    """What all brokers see that could be asked. Of what two see differently the later holds."""

    sights: Mapping[int, Sight]

    def __str__(self) -> str:
        return "\n".join(f"broker {number} sees {sight}" for number, sight in self.sights.items())

    @property
    def controller(self) -> int | None:
        """Whom most of those name who know the latest."""
        latest = max((sight.term for sight in self.sights.values()), default=0)
        named = Counter(
            sight.controller
            for sight in self.sights.values()
            if sight.term == latest and sight.controller is not None
        )
        return named.most_common(1)[0][0] if named else None

    @property
    def is_joined(self) -> bool:
        """Whether all of them hear each other and vote, as each of them knows."""
        everyone = self.sights.keys()
        return self.controller is not None and all(
            sight.up >= everyone and sight.voters >= everyone for sight in self.sights.values()
        )

    def partition_count(self, topic: str) -> int:
        return max((len(sight.topics.get(topic, ())) for sight in self.sights.values()), default=0)

    def leader_of(self, topic: str, partition: int) -> int | None:
        newest = self._newest(topic, partition)
        return None if newest is None else newest.leader

    def in_sync(self, topic: str, partition: int) -> tuple[int, ...]:
        newest = self._newest(topic, partition)
        return () if newest is None else newest.in_sync

    def is_in_sync(self, topic: str | None) -> bool:
        names = {name for sight in self.sights.values() for name in sight.topics}
        return all(
            self._is_partition_in_sync(name, partition)
            for name in (names if topic is None else [topic])
            for partition in range(self.partition_count(name))
        )

    def _is_partition_in_sync(self, topic: str, partition: int) -> bool:
        newest = self._newest(topic, partition)
        if newest is None or newest.leader not in self.sights:
            return False
        return {n for n in newest.replicas if n in self.sights} <= set(newest.in_sync)

    def _newest(self, topic: str, partition: int) -> PartitionSeen | None:
        seen = [
            sight.topics[topic][partition]
            for sight in self.sights.values()
            if partition < len(sight.topics.get(topic, ()))
        ]
        return max(seen, key=lambda one: (one.epoch, one.revision), default=None)


class WatchedCluster(ABC):
    """What a test may know of a cluster, however its brokers run."""

    @property
    @abstractmethod
    def running(self) -> list[int]:
        """The brokers that were started and not ended, paused ones too."""

    @abstractmethod
    def _view(self) -> View:
        """What all brokers see that do not stand still."""

    def leader_of(self, topic: str, partition: int = 0) -> int | None:
        """The broker that leads a partition; None while nobody does who runs."""
        leader = self._view().leader_of(topic, partition)
        return leader if leader in self.running else None

    @property
    def controller(self) -> int | None:
        """The broker that leads the cluster; None while nobody does who runs."""
        controller = self._view().controller
        return controller if controller in self.running else None

    def in_sync(self, topic: str, partition: int = 0) -> tuple[int, ...]:
        """The replicas of a partition that are up to date, as its leader tells."""
        return self._view().in_sync(topic, partition)

    def wait_until_leader(
        self,
        topic: str,
        partition: int = 0,
        *,
        other_than: int | None = None,
        within: float = WITHIN_S,
    ) -> int:
        """The leader of a partition, as soon as it has one."""

        def look() -> int | None:
            leader = self.leader_of(topic, partition)
            return None if leader == other_than else leader

        return poll_until(look, lambda: f"a leader of {topic}-{partition}\n{self._view()}", within)

    def wait_until_led(self, topic: str, *, within: float = WITHIN_S) -> None:
        """Until every partition of a topic has a leader."""
        for partition in range(self._view().partition_count(topic)):
            self.wait_until_leader(topic, partition, within=within)

    def wait_until_controller(
        self, *, other_than: int | None = None, within: float = WITHIN_S
    ) -> int:
        """The controller, as soon as there is one."""

        def look() -> int | None:
            controller = self.controller
            return None if controller == other_than else controller

        return poll_until(look, lambda: f"a controller\n{self._view()}", within)

    def wait_until_in_sync(self, topic: str | None = None, *, within: float = WITHIN_S) -> None:
        """Until every replica of a topic, or of all topics, that is on a running broker is up to
        date."""
        poll_until(
            lambda: self._view().is_in_sync(topic) or None,
            lambda: f"replicas of {topic or 'all topics'} in sync\n{self._view()}",
            within,
        )

    def wait_until_joined(self, *, within: float = WITHIN_S) -> None:
        """Until all running brokers hear each other and belong to the controller's group."""
        poll_until(
            lambda: self._view().is_joined or None,
            lambda: f"all brokers in the cluster\n{self._view()}",
            within,
        )
