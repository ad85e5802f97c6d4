"""Turns requests into commands. Nothing here changes a table.

An operation reads the tables and returns the commands to commit and the answer to give once they are
committed, or raises the KafkaError that rejects it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar
from uuid import UUID

import msgspec

from kafkaesque.broker.cluster.rules import commands
from kafkaesque.broker.cluster.rules.config_changes import (
    ConfigChange,
    changed_broker_configs,
    changed_topic_configs,
    given_topic_configs,
)
from kafkaesque.broker.cluster.rules.dynamic_config import DynamicConfig
from kafkaesque.broker.cluster.rules.placement import PlacementCandidate, majority_is_live, place
from kafkaesque.broker.cluster.rules.reassignment import (
    OngoingReassignment,
    WantedReassignment,
    completion,
    ongoing_reassignments,
    reassignment,
)
from kafkaesque.broker.cluster.rules.registration import NewBroker, registration, unregistration
from kafkaesque.broker.cluster.rules.tables import RegisteredBroker, Tables, Topic, folded_name
from kafkaesque.model import limits
from kafkaesque.model.errors import (
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidTopic,
    KafkaError,
    PolicyViolation,
    TopicAlreadyExists,
)
from kafkaesque.model.ids import FIRST_PARTITION_GROUP, GroupId, NodeId, ProducerId

T = TypeVar("T")

PRODUCER_ID_BLOCK = 1000
"""Ids reserved at a time: one write to the log serves this many producers."""

CLUSTER_METADATA_TOPIC = "__cluster_metadata"
"""Reserved: Kafka uses this name for its controller's log, and tools would mistake a topic for it."""

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Decision(Generic[T]):
    """Commit `commands`, then give `answer`."""

    commands: tuple[commands.Command, ...]
    answer: T

    def dry(self) -> Decision[T]:
        """The same answer with nothing to commit, for validate-only."""
        return Decision((), self.answer)


class NewTopic(msgspec.Struct, frozen=True, array_like=True):
    """A topic to create; -1 means the broker's default, as on the wire.

    Sent between brokers: the order of the fields is its format, a new field goes to the end.
    """

    name: str
    partition_count: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str | None] = {}
    assignments: Mapping[int, Sequence[int]] = {}


@dataclass(slots=True)
class Controller:
    """The rules of the control plane; everything external is passed in."""

    tables: Tables
    settings: DynamicConfig
    nodes: Callable[[], Sequence[NodeId]]
    """The brokers that are up."""
    new_topic_id: Callable[[], UUID]

    def create_topic(self, wanted: NewTopic) -> Decision[Topic]:
        """Creates a topic. The answer is the topic as it will be, also for validate-only."""
        check_topic_name(wanted.name)
        if wanted.name == CLUSTER_METADATA_TOPIC:
            raise InvalidRequest(f"Creation of internal topic {wanted.name} is prohibited.")
        self._refuse_taken(wanted.name)
        configs = given_topic_configs(wanted.configs)
        replicas = self._replicas_of(wanted)
        self._refuse_too_many(len(replicas))
        command = commands.CreateTopic(wanted.name, self.new_topic_id(), replicas, configs)
        preview = Tables(disks=self.tables.disks, next_group_id=self.tables.next_group_id)
        preview.apply(command)
        return Decision((command,), preview.by_name[wanted.name])

    def create_topics(self, wanted: Sequence[NewTopic]) -> Decision[list[Topic | KafkaError]]:
        """Creates several topics in one commit. The answer has a topic or an error for each."""
        drafted = self.tables.draft()
        draft = replace(self, tables=drafted)
        accepted: list[commands.Command] = []
        answers: list[Topic | KafkaError] = []
        for one in wanted:
            try:
                decision = draft.create_topic(one)
            except KafkaError as error:
                answers.append(error)
                continue
            for command in decision.commands:
                drafted.apply(command)
            accepted += decision.commands
            answers.append(decision.answer)
        return Decision(tuple(accepted), answers)

    def delete_topics(self, topics: Sequence[Topic]) -> Decision[None]:
        """Deletes the topics in one commit."""
        return Decision(tuple(commands.DeleteTopic(topic.topic_id) for topic in topics), None)

    def create_partitions(
        self, topic: Topic, count: int, assignments: Sequence[Sequence[int]] | None
    ) -> Decision[None]:
        """Grows `topic` to a total of `count` partitions."""
        refuse_internal(topic)
        added = count - topic.partition_count
        if added == 0:
            raise InvalidPartitions(f"Topic already has {count} partition(s).")
        if added < 0:
            raise InvalidPartitions(
                f"The topic {topic.name} currently has {topic.partition_count} partition(s); "
                f"{count} would not be an increase."
            )
        self._refuse_too_many(added)
        factor = topic.replication_factor
        if assignments is None:
            replicas = self._placed(added, factor)
        else:
            if len(assignments) != added:
                raise InvalidReplicaAssignment(
                    f"Attempted to add {added} additional partition(s), but only "
                    f"{len(assignments)} assignment(s) were specified."
                )
            replicas = tuple(self._new_replicas(nodes, factor) for nodes in assignments)
        return Decision((commands.AddPartitions(topic.topic_id, replicas),), None)

    def change_topic_configs(
        self, topic: Topic, changes: Sequence[ConfigChange], *, replace_all: bool = False
    ) -> Decision[None]:
        """Settings not named keep their values, or with `replace_all` (AlterConfigs) are unset."""
        configs = changed_topic_configs(
            {} if replace_all else topic.configs, changes, self.settings.current
        )
        return Decision((commands.SetTopicConfigs(topic.topic_id, configs),), None)

    def change_broker_configs(
        self,
        node_id: NodeId | None,
        changes: Sequence[ConfigChange],
        *,
        replace_all: bool = False,
    ) -> Decision[None]:
        """As for topics. `node_id` None sets the default of all brokers."""
        current = {} if replace_all else self.tables.broker_configs.get(node_id, {})
        configs = changed_broker_configs(current, changes, self.settings.current)
        return Decision((commands.SetBrokerConfigs(node_id, configs),), None)

    def reserve_producer_ids(self) -> Decision[range]:
        first = self.tables.next_producer_id
        end = ProducerId(first + PRODUCER_ID_BLOCK)
        return Decision((commands.ReserveProducerIds(end),), range(first, end))

    def register_broker(
        self, wanted: NewBroker, *, is_old_gone: bool = False
    ) -> Decision[RegisteredBroker]:
        """The answer is the broker as it will be in the tables, with generation and epoch.

        `is_old_gone`: the caller guarantees that the process with this node id has ended.
        """
        command = registration(self.tables, wanted, self.nodes(), is_old_gone=is_old_gone)
        if command is None:
            return Decision((), self.tables.brokers[wanted.node_id])
        preview = Tables(
            disks=dict(self.tables.disks), registration_count=self.tables.registration_count
        )
        preview.apply(command)
        return Decision((command,), preview.brokers[wanted.node_id])

    def unregister_broker(self, node_id: int) -> Decision[None]:
        return Decision((unregistration(self.tables, node_id),), None)

    def alter_partition_reassignments(
        self, wanted: Sequence[WantedReassignment], *, allow_factor_change: bool = True
    ) -> Decision[list[KafkaError | None]]:
        """Commits all accepted changes at once; the answer has an error or None for each."""
        accepted: list[commands.Reassignment] = []
        answers: list[KafkaError | None] = []
        for one in wanted:
            try:
                change = reassignment(
                    self.tables,
                    one,
                    self._checked_nodes,
                    allow_factor_change=allow_factor_change,
                )
            except KafkaError as error:
                answers.append(error)
                continue
            answers.append(None)
            if change is not None:
                accepted.append(change)
        command = commands.SetReassignments(tuple(accepted))
        return Decision((command,) if accepted else (), answers)

    def list_partition_reassignments(
        self, asked: Mapping[str, Sequence[int]] | None
    ) -> Decision[list[OngoingReassignment]]:
        """`asked` None: of all partitions."""
        return Decision((), ongoing_reassignments(self.tables, asked))

    def complete_reassignment(self, group_id: GroupId, target: Sequence[NodeId]) -> Decision[None]:
        """For the group's leader, once its members are those of `target`. A late or repeated request
        changes nothing."""
        command = completion(self.tables, group_id, target)
        return Decision(() if command is None else (command,), None)

    def _refuse_taken(self, name: str) -> None:
        if name in self.tables.by_name:
            raise TopicAlreadyExists(f"Topic '{name}' already exists.")
        other = self.tables.by_folded_name.get(folded_name(name))
        if other is not None:
            raise InvalidTopic(f"Topic '{name}' collides with existing topic: {other.name}")

    def _refuse_too_many(self, added: int) -> None:
        total = self.tables.partition_count + added
        if total > self.settings.current.max_partitions:
            raise PolicyViolation(
                f"The cluster would have {total} partitions; max.partitions is "
                f"{self.settings.current.max_partitions}. Raise it with --set max.partitions={total}."
            )

    def _replicas_of(self, wanted: NewTopic) -> tuple[tuple[NodeId, ...], ...]:
        if wanted.assignments:
            return self._assigned_replicas(wanted)
        count = wanted.partition_count
        factor = wanted.replication_factor
        if factor == 0 or factor < -1:
            raise InvalidReplicationFactor(
                "Replication factor must be larger than 0, or -1 to use the default value."
            )
        if count == 0 or count < -1:
            raise InvalidPartitions(
                "Number of partitions was set to an invalid non-positive value."
            )
        if count == -1:
            count = self.settings.current.num_partitions
        if factor == -1:
            factor = self.settings.current.default_replication_factor
        self._refuse_too_many(count)
        return self._placed(count, factor)

    def _assigned_replicas(self, wanted: NewTopic) -> tuple[tuple[NodeId, ...], ...]:
        if wanted.replication_factor != -1:
            raise InvalidRequest(
                "A manual partition assignment was specified, but replication factor was not set to -1."
            )
        if wanted.partition_count != -1:
            raise InvalidRequest(
                "A manual partition assignment was specified, but numPartitions was not set to -1."
            )
        factor = len(next(iter(wanted.assignments.values())))
        checked = {
            index: self._new_replicas(nodes, factor) for index, nodes in wanted.assignments.items()
        }
        if sorted(checked) != list(range(len(checked))):
            raise InvalidReplicaAssignment(
                "partitions should be a consecutive 0-based integer sequence"
            )
        return tuple(checked[index] for index in range(len(checked)))

    def _placed(self, count: int, factor: int) -> tuple[tuple[NodeId, ...], ...]:
        start = self.tables.next_group_id - FIRST_PARTITION_GROUP
        return place(list(self._candidates().values()), count, factor, start)

    def _candidates(self) -> dict[NodeId, PlacementCandidate]:
        """Every broker of the cluster, and this one if it is alone and not registered yet."""
        live, brokers = self.nodes(), self.tables.brokers
        racks = {
            node: brokers[node].rack if node in brokers else None for node in (*brokers, *live)
        }
        return {node: PlacementCandidate(node, rack, node in live) for node, rack in racks.items()}

    def _new_replicas(self, nodes: Sequence[int], factor: int) -> tuple[NodeId, ...]:
        """Checks a manual assignment of a new partition, whose group must be able to elect a leader."""
        checked = self._checked_nodes(nodes, factor)
        candidates = self._candidates()
        if not majority_is_live(candidates[node] for node in checked):
            raise InvalidReplicaAssignment(
                f"A majority of the brokers specified in a manual partition assignment must be up: "
                f"{list(nodes)}"
            )
        return checked

    def _checked_nodes(self, nodes: Sequence[int], factor: int | None = None) -> tuple[NodeId, ...]:
        if not nodes:
            raise InvalidReplicaAssignment(
                "The manual partition assignment includes an empty replica list."
            )
        registered = self._candidates()
        for node in sorted(nodes):
            if node not in registered:
                raise InvalidReplicaAssignment(
                    f"The manual partition assignment includes broker {node}, but no such broker is "
                    "registered."
                )
            if nodes.count(node) > 1:
                raise InvalidReplicaAssignment(
                    f"The manual partition assignment includes the broker {node} more than once."
                )
        if factor is not None and len(nodes) != factor:
            raise InvalidReplicaAssignment(
                f"The manual partition assignment includes a partition with {len(nodes)} replica(s), "
                f"but this is not consistent with previous partitions, which have {factor} replica(s)."
            )
        return tuple(NodeId(node) for node in nodes)


def check_topic_name(name: str) -> None:
    """Kafka's rule (Topic.java); a topic's directory is its id, so a name never becomes a path."""
    if not name:
        raise InvalidTopic("Topic name is invalid: the empty string is not allowed")
    if name in (".", ".."):
        raise InvalidTopic(f"Topic name is invalid: '{name}' is not allowed")
    if len(name) > limits.TOPIC_NAME_LENGTH_MAX:
        raise InvalidTopic(
            f"Topic name is invalid: the length of '{name}' is longer than the max allowed length "
            f"{limits.TOPIC_NAME_LENGTH_MAX}"
        )
    if not _LEGAL_NAME.fullmatch(name):
        raise InvalidTopic(
            f"Topic name is invalid: '{name}' contains one or more characters other than ASCII "
            "alphanumerics, '.', '_' and '-'"
        )


def is_legal_topic_name(name: str) -> bool:
    try:
        check_topic_name(name)
    except InvalidTopic:
        return False
    return True


def refuse_internal(topic: Topic) -> None:
    """Kafka lets clients delete and grow __consumer_offsets, and loses committed offsets that way."""
    if topic.is_internal:
        raise PolicyViolation(f"The internal topic {topic.name} cannot be deleted or grown.")
