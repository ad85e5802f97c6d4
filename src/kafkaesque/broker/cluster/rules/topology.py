"""What the tables hold: brokers, topics, and where their partitions live. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from kafkaesque.model.ids import GroupId, MemberId, NodeId, PartitionIndex, TopicId, member_id

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state"})


def folded_name(name: str) -> str:
    """Two topics may not differ in '.' and '_' alone: Kafka's rule, as they would be one metric."""
    return name.replace(".", "_")


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker that belongs to the cluster, be it up or not."""

    node_id: NodeId
    directory_id: UUID
    generation: int
    """0 for its first disk, one more with each other."""
    host: str
    port: int
    rack: str | None
    incarnation: int
    epoch: int
    """Ordinal of this registration over all of the cluster, from 1: later is greater."""

    @property
    def member_id(self) -> MemberId:
        return member_id(self.node_id, self.generation)


class Disk(NamedTuple):
    """The last disk that a node had, kept when it leaves: should it come back with another one, it
    must not be the member that it was."""

    directory_id: UUID
    generation: int


@dataclass(frozen=True, slots=True)
class Assignment:
    """Where one partition lives, and where it is on its way to."""

    group_id: GroupId
    replicas: tuple[NodeId, ...]
    """The preferred leader first. As long as there is a target: where the partition came from."""
    initial_members: tuple[MemberId, ...]
    """Of the group when it was made, in the order of `replicas`; none once it was reassigned."""
    target: tuple[NodeId, ...] | None = None
    """Of a reassignment under way: never the same nodes as `replicas`."""

    @property
    def wanted(self) -> tuple[NodeId, ...]:
        """Where the partition shall live in the end, the preferred leader first."""
        return self.replicas if self.target is None else self.target

    @property
    def adding(self) -> tuple[NodeId, ...]:
        return tuple(sorted(set(self.wanted) - set(self.replicas)))

    @property
    def removing(self) -> tuple[NodeId, ...]:
        return tuple(sorted(set(self.replicas) - set(self.wanted)))

    @property
    def all_replicas(self) -> tuple[NodeId, ...]:
        """As Kafka tells clients: those wanted, then those that are to go."""
        return self.replicas if self.target is None else self.target + self.removing


@dataclass(slots=True)
class Topic:
    """One topic and its partitions by index, of which there is at least one."""

    name: str
    topic_id: TopicId
    partitions: list[Assignment]
    configs: Mapping[str, str]

    @property
    def replicas(self) -> tuple[tuple[NodeId, ...], ...]:
        """The nodes of each partition as clients are told, the preferred leader first."""
        return tuple(assignment.all_replicas for assignment in self.partitions)

    @property
    def partition_count(self) -> int:
        return len(self.partitions)

    @property
    def replication_factor(self) -> int:
        return len(self.partitions[0].wanted)

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS


class Place(NamedTuple):
    """Which partition a group is."""

    topic_id: TopicId
    partition: PartitionIndex
