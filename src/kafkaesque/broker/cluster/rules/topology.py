"""The rows of the tables: brokers, topics, and the assignments of their partitions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from kafkaesque.model.ids import GroupId, MemberId, NodeId, PartitionIndex, TopicId, member_id

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state"})


def folded_name(name: str) -> str:
    """Topic names may not differ in '.' and '_' only: Kafka's rule, as their metrics would collide."""
    return name.replace(".", "_")


@dataclass(frozen=True, slots=True)
class RegisteredBroker:
    """A registered broker, up or not."""

    node_id: NodeId
    directory_id: UUID
    generation: int
    """0 for its first disk; grows with each new disk."""
    host: str
    port: int
    rack: str | None
    incarnation: int
    epoch: int
    """Number of this registration in the whole cluster, from 1; grows."""

    @property
    def member_id(self) -> MemberId:
        return member_id(self.node_id, self.generation)


class Disk(NamedTuple):
    """The last disk of a node. Kept when the node leaves: if it comes back with another disk, it
    must become a new Raft member."""

    directory_id: UUID
    generation: int


@dataclass(frozen=True, slots=True)
class ReplicaAssignment:
    """The replicas of one partition, and the target of a reassignment in progress."""

    group_id: GroupId
    replicas: tuple[NodeId, ...]
    """The preferred leader first. During a reassignment: the replicas before it."""
    initial_members: tuple[MemberId, ...]
    """The group's first members, in the order of `replicas`; empty once it was reassigned."""
    target: tuple[NodeId, ...] | None = None
    """The replicas after the reassignment in progress: never the same nodes as `replicas`."""

    @property
    def wanted(self) -> tuple[NodeId, ...]:
        """The replicas in the end, the preferred leader first."""
        return self.replicas if self.target is None else self.target

    @property
    def adding(self) -> tuple[NodeId, ...]:
        return tuple(sorted(set(self.wanted) - set(self.replicas)))

    @property
    def removing(self) -> tuple[NodeId, ...]:
        return tuple(sorted(set(self.replicas) - set(self.wanted)))

    @property
    def all_replicas(self) -> tuple[NodeId, ...]:
        """As Kafka reports to clients: the wanted replicas, then those to be removed."""
        return self.replicas if self.target is None else self.target + self.removing


@dataclass(slots=True)
class Topic:
    """One topic and its partitions by index; there is at least one."""

    name: str
    topic_id: TopicId
    partitions: list[ReplicaAssignment]
    configs: Mapping[str, str]

    @property
    def replicas(self) -> tuple[tuple[NodeId, ...], ...]:
        """The nodes of each partition as reported to clients, the preferred leader first."""
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


class PartitionOfGroup(NamedTuple):
    """The partition that a Raft group replicates."""

    topic_id: TopicId
    partition: PartitionIndex
