"""The state of a test cluster as its brokers report it, and helpers that wait for a state.

How brokers are queried is up to the cluster: `cluster.py` reads their objects on their own event
loops, `cluster_processes.py` sends requests as any client does.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from kafkaesque.testing.cluster_layout import WITHIN_S
from kafkaesque.testing.waiting import poll_until

if TYPE_CHECKING:
    from kafkaesque.broker.node import Node


class PartitionReport(NamedTuple):
    """One partition as one broker reports it; epoch -1 while it reports no leader."""

    replicas: tuple[int, ...]
    epoch: int = -1
    revision: int = -1
    leader: int | None = None
    in_sync: tuple[int, ...] = ()


@dataclass(frozen=True)
class BrokerReport:
    """The cluster as one broker reports it."""

    controller: int | None
    term: int
    """Raft term of that controller: the higher one wins. 0 if unknown."""
    voters: frozenset[int]
    """Voters of the controller quorum."""
    up: frozenset[int]
    """Brokers it is connected to, itself included."""
    topics: Mapping[str, tuple[PartitionReport, ...]]


async def query(node: Node) -> BrokerReport:
    from kafkaesque.model.ids import node_of

    cluster = node.context.cluster
    replica = cluster.controller_log.replica
    topics = {}
    for topic in cluster.tables.by_name.values():
        seen = []
        for assignment in topic.partitions:
            leader = cluster.leaders.get(assignment.group_id)
            seen.append(
                PartitionReport(assignment.all_replicas)
                if leader is None
                else PartitionReport(
                    assignment.all_replicas,
                    leader.epoch,
                    leader.revision,
                    leader.node_id,
                    leader.in_sync,
                )
            )
        topics[topic.name] = tuple(seen)
    return BrokerReport(
        controller=cluster.controller_id,
        term=replica.leadership.term,
        voters=frozenset(node_of(member) for member in replica.membership.voters),
        up=frozenset(cluster.live_nodes()),
        topics=topics,
    )


@dataclass(frozen=True)
class ClusterReport:
    """The reports of all brokers that answered. Where they differ, the newest one counts."""

    views: Mapping[int, BrokerReport]

    def __str__(self) -> str:
        return "\n".join(f"broker {number} reports {view}" for number, view in self.views.items())

    @property
    def controller(self) -> int | None:
        """The controller that most brokers with the highest known term name."""
        latest = max((view.term for view in self.views.values()), default=0)
        named = Counter(
            view.controller
            for view in self.views.values()
            if view.term == latest and view.controller is not None
        )
        return named.most_common(1)[0][0] if named else None

    @property
    def is_joined(self) -> bool:
        """Whether every broker reports that all are connected and vote."""
        everyone = self.views.keys()
        return self.controller is not None and all(
            view.up >= everyone and view.voters >= everyone for view in self.views.values()
        )

    def partition_count(self, topic: str) -> int:
        return max((len(view.topics.get(topic, ())) for view in self.views.values()), default=0)

    def leader_of(self, topic: str, partition: int) -> int | None:
        newest = self._newest(topic, partition)
        return None if newest is None else newest.leader

    def in_sync(self, topic: str, partition: int) -> tuple[int, ...]:
        newest = self._newest(topic, partition)
        return () if newest is None else newest.in_sync

    def is_in_sync(self, topic: str | None) -> bool:
        names = {name for view in self.views.values() for name in view.topics}
        return all(
            self._is_partition_in_sync(name, partition)
            for name in (names if topic is None else [topic])
            for partition in range(self.partition_count(name))
        )

    def _is_partition_in_sync(self, topic: str, partition: int) -> bool:
        newest = self._newest(topic, partition)
        if newest is None or newest.leader not in self.views:
            return False
        return {n for n in newest.replicas if n in self.views} <= set(newest.in_sync)

    def partitions(self) -> dict[tuple[str, int], PartitionReport]:
        """Every partition that any broker reports."""
        names = {name for view in self.views.values() for name in view.topics}
        return {
            (name, partition): newest
            for name in names
            for partition in range(self.partition_count(name))
            if (newest := self._newest(name, partition)) is not None
        }

    def _newest(self, topic: str, partition: int) -> PartitionReport | None:
        seen = [
            view.topics[topic][partition]
            for view in self.views.values()
            if partition < len(view.topics.get(topic, ()))
        ]
        return max(seen, key=lambda one: (one.epoch, one.revision), default=None)


class ObservedCluster(ABC):
    """Questions a test can ask about a cluster, whether its brokers are threads or processes."""

    @property
    @abstractmethod
    def running(self) -> list[int]:
        """The brokers that were started and not stopped, including paused ones."""

    @abstractmethod
    def _view(self) -> ClusterReport:
        """Queries every broker that is not paused."""

    def leader_of(self, topic: str, partition: int = 0) -> int | None:
        """The leader of a partition; None while no running broker leads it."""
        leader = self._view().leader_of(topic, partition)
        return leader if leader in self.running else None

    @property
    def controller(self) -> int | None:
        """The controller; None while no running broker is the controller."""
        controller = self._view().controller
        return controller if controller in self.running else None

    def in_sync(self, topic: str, partition: int = 0) -> tuple[int, ...]:
        """The in-sync replicas of a partition, as its leader reports them."""
        return self._view().in_sync(topic, partition)

    def wait_until_leader(
        self,
        topic: str,
        partition: int = 0,
        *,
        other_than: int | None = None,
        within: float = WITHIN_S,
    ) -> int:
        """Wait until a partition has a leader, and return it."""

        def look() -> int | None:
            leader = self.leader_of(topic, partition)
            return None if leader == other_than else leader

        return poll_until(look, lambda: f"a leader of {topic}-{partition}\n{self._view()}", within)

    def wait_until_led(self, topic: str, *, within: float = WITHIN_S) -> None:
        """Wait until every partition of a topic has a leader."""
        for partition in range(self._view().partition_count(topic)):
            self.wait_until_leader(topic, partition, within=within)

    def wait_until_controller(
        self, *, other_than: int | None = None, within: float = WITHIN_S
    ) -> int:
        """Wait until there is a controller, and return it."""

        def look() -> int | None:
            controller = self.controller
            return None if controller == other_than else controller

        return poll_until(look, lambda: f"a controller\n{self._view()}", within)

    def wait_until_in_sync(self, topic: str | None = None, *, within: float = WITHIN_S) -> None:
        """Wait until all replicas of a topic (default: of all topics) on running brokers are in sync."""
        poll_until(
            lambda: self._view().is_in_sync(topic),
            lambda: f"replicas of {topic or 'all topics'} in sync\n{self._view()}",
            within,
        )

    def wait_until_joined(self, *, within: float = WITHIN_S) -> None:
        """Wait until all running brokers are connected and vote in the controller quorum."""
        poll_until(
            lambda: self._view().is_joined,
            lambda: f"all brokers in the cluster\n{self._view()}",
            within,
        )
