"""The state of the cluster as of the applied log, and its snapshot.

Only `apply` changes the tables, and `restore`, which replaces all commands up to a snapshot. Counters
(group ids, generations, registrations) advance at replay, so every node counts alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import msgspec

from kafkaesque.broker.cluster.rules import commands
from kafkaesque.broker.cluster.rules.topology import (
    INTERNAL_TOPICS,
    Disk,
    PartitionOfGroup,
    RegisteredBroker,
    ReplicaAssignment,
    Topic,
    folded_name,
)
from kafkaesque.model.errors import CorruptMessage, check
from kafkaesque.model.ids import (
    FIRST_PARTITION_GROUP,
    GroupId,
    MemberId,
    NodeId,
    PartitionIndex,
    ProducerId,
    TopicId,
    member_id,
)

__all__ = [
    "INTERNAL_TOPICS",
    "PartitionOfGroup",
    "RegisteredBroker",
    "ReplicaAssignment",
    "Tables",
    "Topic",
    "folded_name",
]


@dataclass(slots=True)
class Tables:
    """All tables of the control plane.

    `by_name`, `by_id` and `by_folded_name` hold the same topics, `by_group` their partitions;
    `partition_count` is the sum over them.
    """

    by_name: dict[str, Topic] = field(default_factory=dict)
    by_id: dict[TopicId, Topic] = field(default_factory=dict)
    by_folded_name: dict[str, Topic] = field(default_factory=dict)
    by_group: dict[GroupId, PartitionOfGroup] = field(default_factory=dict)
    deleted_ids: set[TopicId] = field(default_factory=set)
    """Topics that this log deleted: only their files may be removed from the data directory."""
    partition_count: int = 0
    broker_configs: dict[NodeId | None, Mapping[str, str]] = field(default_factory=dict)
    next_producer_id: ProducerId = field(default=ProducerId(0))
    next_group_id: GroupId = field(default=FIRST_PARTITION_GROUP)
    """Greater than any group id ever used."""
    brokers: dict[NodeId, RegisteredBroker] = field(default_factory=dict)
    disks: dict[NodeId, Disk] = field(default_factory=dict)
    """For every node that was ever registered."""
    registration_count: int = 0

    def apply(self, command: commands.Command) -> None:
        """Applies one committed command."""
        match command:
            case commands.CreateTopic():
                _create_topic(self, command)
            case commands.DeleteTopic():
                _delete_topic(self, command)
            case commands.AddPartitions():
                _add_partitions(self, command)
            case commands.SetTopicConfigs():
                _set_topic_configs(self, command)
            case commands.SetBrokerConfigs():
                _set_broker_configs(self, command)
            case commands.ReserveProducerIds():
                _reserve_producer_ids(self, command)
            case commands.RegisterBroker():
                _register_broker(self, command)
            case commands.UnregisterBroker():
                _unregister_broker(self, command)
            case commands.SetReassignments():
                _set_reassignments(self, command)
            case commands.CompleteReassignment():
                _complete_reassignment(self, command)

    def draft(self) -> Tables:
        """A copy on which to try new topics. Existing topics are shared and must not be changed."""
        return replace(
            self,
            by_name=dict(self.by_name),
            by_id=dict(self.by_id),
            by_folded_name=dict(self.by_folded_name),
            by_group=dict(self.by_group),
        )

    def assignment_of(self, group_id: GroupId) -> ReplicaAssignment | None:
        """The assignment of a group's partition; None if it was deleted or is not known yet."""
        place = self.by_group.get(group_id)
        return None if place is None else self.by_id[place.topic_id].partitions[place.partition]

    def was_deleted(self, group_id: GroupId) -> bool:
        """Whether the group belonged to a deleted partition. Group ids are never reused."""
        is_past = FIRST_PARTITION_GROUP <= group_id < self.next_group_id
        return is_past and group_id not in self.by_group

    def members(self, nodes: Iterable[NodeId]) -> tuple[MemberId, ...]:
        """The Raft member ids of the nodes with their current disks. A node that was never
        registered, as in the log of a single broker, has generation 0."""
        disks = self.disks
        return tuple(
            member_id(node, disks[node].generation if node in disks else 0) for node in nodes
        )

    def snapshot(self) -> bytes:
        """Encodes the tables, for a node that lacks the commands that led here."""
        return encode_snapshot(
            TablesSnapshot(
                topics=list(self.by_name.values()),
                deleted_ids=sorted(self.deleted_ids),
                broker_configs=list(self.broker_configs.items()),
                next_producer_id=self.next_producer_id,
                next_group_id=self.next_group_id,
                brokers=list(self.brokers.values()),
                disks=list(self.disks.items()),
                registration_count=self.registration_count,
            )
        )

    def restore(self, data: bytes) -> None:
        """Replaces all tables with those of a snapshot. Raises CorruptMessage, and changes nothing,
        if it cannot be read."""
        saved = decode_snapshot(data)
        self.by_name = {topic.name: topic for topic in saved.topics}
        self.by_id = {topic.topic_id: topic for topic in saved.topics}
        self.by_folded_name = {folded_name(topic.name): topic for topic in saved.topics}
        self.by_group = {
            assignment.group_id: PartitionOfGroup(topic.topic_id, PartitionIndex(index))
            for topic in saved.topics
            for index, assignment in enumerate(topic.partitions)
        }
        self.partition_count = len(self.by_group)
        self.deleted_ids = set(saved.deleted_ids)
        self.broker_configs = dict(saved.broker_configs)
        self.next_producer_id = saved.next_producer_id
        self.next_group_id = saved.next_group_id
        self.brokers = {broker.node_id: broker for broker in saved.brokers}
        self.disks = dict(saved.disks)
        self.registration_count = saved.registration_count


def _create_topic(tables: Tables, command: commands.CreateTopic) -> None:
    check(command.name not in tables.by_name, f"topic {command.name} created twice")
    topic = Topic(
        name=command.name,
        topic_id=TopicId(command.topic_id),
        partitions=[],
        configs=command.configs,
    )
    tables.by_name[topic.name] = topic
    tables.by_id[topic.topic_id] = topic
    tables.by_folded_name[folded_name(topic.name)] = topic
    _append_partitions(tables, topic, command.replicas)


def _append_partitions(tables: Tables, topic: Topic, replicas: tuple[tuple[int, ...], ...]) -> None:
    for given in replicas:
        nodes = _nodes(given)
        group_id = tables.next_group_id
        tables.by_group[group_id] = PartitionOfGroup(
            topic.topic_id, PartitionIndex(topic.partition_count)
        )
        topic.partitions.append(ReplicaAssignment(group_id, nodes, tables.members(nodes)))
        tables.next_group_id = GroupId(group_id + 1)
    tables.partition_count += len(replicas)


def _delete_topic(tables: Tables, command: commands.DeleteTopic) -> None:
    topic = tables.by_id.pop(TopicId(command.topic_id))
    tables.deleted_ids.add(topic.topic_id)
    del tables.by_name[topic.name]
    del tables.by_folded_name[folded_name(topic.name)]
    for assignment in topic.partitions:
        del tables.by_group[assignment.group_id]
    tables.partition_count -= topic.partition_count


def _add_partitions(tables: Tables, command: commands.AddPartitions) -> None:
    _append_partitions(tables, tables.by_id[TopicId(command.topic_id)], command.replicas)


def _set_topic_configs(tables: Tables, command: commands.SetTopicConfigs) -> None:
    tables.by_id[TopicId(command.topic_id)].configs = command.configs


def _set_broker_configs(tables: Tables, command: commands.SetBrokerConfigs) -> None:
    node_id = None if command.node_id is None else NodeId(command.node_id)
    tables.broker_configs[node_id] = command.configs


def _reserve_producer_ids(tables: Tables, command: commands.ReserveProducerIds) -> None:
    check(command.next_producer_id > tables.next_producer_id, "producer ids went back")
    tables.next_producer_id = ProducerId(command.next_producer_id)


def _register_broker(tables: Tables, command: commands.RegisterBroker) -> None:
    node_id = NodeId(command.node_id)
    disk = tables.disks.get(node_id)
    if disk is None:
        disk = Disk(command.directory_id, 0)
    elif disk.directory_id != command.directory_id:
        disk = Disk(command.directory_id, disk.generation + 1)
    tables.disks[node_id] = disk
    tables.registration_count += 1
    tables.brokers[node_id] = RegisteredBroker(
        node_id=node_id,
        directory_id=disk.directory_id,
        generation=disk.generation,
        host=command.host,
        port=command.port,
        rack=command.rack,
        incarnation=command.incarnation,
        epoch=tables.registration_count,
    )


def _unregister_broker(tables: Tables, command: commands.UnregisterBroker) -> None:
    del tables.brokers[NodeId(command.node_id)]


def _set_reassignments(tables: Tables, command: commands.SetReassignments) -> None:
    for change in command.changes:
        partitions = tables.by_id[TopicId(change.topic_id)].partitions
        old = partitions[change.partition]
        if change.replicas is None:
            new = replace(old, target=None)
        elif sorted(change.replicas) == sorted(old.replicas):
            # A change of order moves no data: it takes effect at once, as in Kafka.
            new = replace(old, replicas=_nodes(change.replicas), target=None)
        else:
            # From here on a replica that is opened for the first time joins a running group: a
            # node that left and comes back no longer has the votes it gave as an initial member.
            new = replace(old, target=_nodes(change.replicas), initial_members=())
        partitions[change.partition] = new


def _complete_reassignment(tables: Tables, command: commands.CompleteReassignment) -> None:
    partitions = tables.by_id[TopicId(command.topic_id)].partitions
    old = partitions[command.partition]
    check(old.target == command.replicas, "completed a reassignment other than the one in progress")
    partitions[command.partition] = replace(old, replicas=_nodes(command.replicas), target=None)


def _nodes(numbers: tuple[int, ...]) -> tuple[NodeId, ...]:
    return tuple(NodeId(number) for number in numbers)


SNAPSHOT_VERSION: Final = 1
"""Raised when an older broker would misread the format; it then refuses to read it."""


class TablesSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The tables on disk, without what can be computed from the rest.

    A MessagePack map: an old snapshot stays readable when a table with a default is added.
    """

    version: int = SNAPSHOT_VERSION
    topics: list[Topic]
    """In order of creation, which is the order in which clients see them."""
    deleted_ids: list[TopicId]
    broker_configs: list[tuple[NodeId | None, Mapping[str, str]]]
    next_producer_id: ProducerId
    next_group_id: GroupId
    brokers: list[RegisteredBroker]
    disks: list[tuple[NodeId, Disk]]
    registration_count: int


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(TablesSnapshot)


def encode_snapshot(snapshot: TablesSnapshot) -> bytes:
    return _encoder.encode(snapshot)


def decode_snapshot(data: bytes) -> TablesSnapshot:
    try:
        snapshot: TablesSnapshot = _decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise CorruptMessage(f"snapshot of the cluster's tables: {error}") from None
    if snapshot.version > SNAPSHOT_VERSION:
        raise CorruptMessage(
            f"snapshot of the cluster's tables has version {snapshot.version}; this broker reads "
            f"up to version {SNAPSHOT_VERSION}. Upgrade it."
        )
    return snapshot
