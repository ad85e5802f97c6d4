"""Reassignment of partitions to other brokers (KIP-455).

The leader of each partition's group takes the steps of `membership_plan`; when its members are those
of the target, the target becomes the assignment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kafkaesque.broker.cluster.rules import commands
from kafkaesque.broker.cluster.rules.errors import NoReassignmentInProgress
from kafkaesque.broker.cluster.rules.tables import ReplicaAssignment, Tables, Topic
from kafkaesque.model.errors import InvalidReplicationFactor, UnknownTopicOrPartition
from kafkaesque.model.ids import GroupId, NodeId


@dataclass(frozen=True, slots=True)
class WantedReassignment:
    """`replicas` None cancels the reassignment in progress."""

    topic: str
    partition: int
    replicas: Sequence[int] | None


@dataclass(frozen=True, slots=True)
class OngoingReassignment:
    topic: str
    partition: int
    assignment: ReplicaAssignment


def reassignment(
    tables: Tables,
    wanted: WantedReassignment,
    checked_nodes: Callable[[Sequence[int]], tuple[NodeId, ...]],
    *,
    allow_factor_change: bool,
) -> commands.Reassignment | None:
    """The change of one partition; None if it changes nothing. `checked_nodes` rejects bad lists."""
    topic, old = _partition(tables, wanted)
    target = None
    if wanted.replicas is None:
        if old.target is None:
            raise NoReassignmentInProgress("")
    else:
        target = checked_nodes(wanted.replicas)
        if not allow_factor_change and len(target) != len(old.wanted):
            raise InvalidReplicationFactor(
                f"The replication factor is changed from {len(old.wanted)} to {len(target)}"
            )
        if target == old.wanted:
            return None
    return commands.Reassignment(topic.topic_id, wanted.partition, target)


def ongoing_reassignments(
    tables: Tables, asked: Mapping[str, Sequence[int]] | None
) -> list[OngoingReassignment]:
    """Reassignments in progress of the partitions `asked` for, or of all. Unknown partitions are
    left out."""
    if asked is None:
        asked = {name: range(topic.partition_count) for name, topic in tables.by_name.items()}
    found = []
    for name, indexes in asked.items():
        topic = tables.by_name.get(name)
        if topic is None:
            continue
        found += [
            OngoingReassignment(name, index, topic.partitions[index])
            for index in indexes
            if 0 <= index < topic.partition_count and topic.partitions[index].target is not None
        ]
    return found


def completion(
    tables: Tables, group_id: GroupId, target: Sequence[NodeId]
) -> commands.CompleteReassignment | None:
    """None if the group is gone or has another target by now: the sender is merely out of date."""
    place = tables.by_group.get(group_id)
    assignment = tables.assignment_of(group_id)
    if place is None or assignment is None or assignment.target != tuple(target):
        return None
    return commands.CompleteReassignment(place.topic_id, place.partition, assignment.target)


def _partition(tables: Tables, wanted: WantedReassignment) -> tuple[Topic, ReplicaAssignment]:
    topic = tables.by_name.get(wanted.topic)
    if topic is None:
        raise UnknownTopicOrPartition(f"Unable to find a topic named {wanted.topic}.")
    if not 0 <= wanted.partition < topic.partition_count:
        raise UnknownTopicOrPartition(
            f"Unable to find partition {wanted.topic}:{wanted.partition}."
        )
    return topic, topic.partitions[wanted.partition]
