"""The state of the cluster as of the applied log. Changed by `apply` and by nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kafkaesque.cluster import commands
from kafkaesque.model.errors import check
from kafkaesque.model.ids import NodeId, ProducerId, TopicId

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state"})


def folded_name(name: str) -> str:
    """Two topics may not differ in '.' and '_' alone: Kafka's rule, as they would be one metric."""
    return name.replace(".", "_")


@dataclass(slots=True)
class Topic:
    """One topic. `replicas[i]` are the nodes of partition i, the preferred leader first."""

    name: str
    topic_id: TopicId
    replicas: tuple[tuple[NodeId, ...], ...]
    configs: Mapping[str, str]

    @property
    def partition_count(self) -> int:
        return len(self.replicas)

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS


@dataclass(slots=True)
class Tables:
    """All tables of the control plane.

    `by_name`, `by_id` and `by_folded_name` hold the same topics; `partition_count` is the sum over
    them.
    """

    by_name: dict[str, Topic] = field(default_factory=dict)
    by_id: dict[TopicId, Topic] = field(default_factory=dict)
    by_folded_name: dict[str, Topic] = field(default_factory=dict)
    deleted_ids: set[TopicId] = field(default_factory=set)
    """Topics that this log has seen deleted: their files may go, whatever else lies there may not."""
    partition_count: int = 0
    broker_configs: dict[NodeId | None, Mapping[str, str]] = field(default_factory=dict)
    next_producer_id: ProducerId = field(default=ProducerId(0))

    def apply(self, command: commands.Command) -> None:
        """Replay one committed command."""
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


def _create_topic(tables: Tables, command: commands.CreateTopic) -> None:
    check(command.name not in tables.by_name, f"topic {command.name} created twice")
    topic = Topic(
        name=command.name,
        topic_id=TopicId(command.topic_id),
        replicas=_nodes(command.replicas),
        configs=command.configs,
    )
    tables.by_name[topic.name] = topic
    tables.by_id[topic.topic_id] = topic
    tables.by_folded_name[folded_name(topic.name)] = topic
    tables.partition_count += topic.partition_count


def _delete_topic(tables: Tables, command: commands.DeleteTopic) -> None:
    topic = tables.by_id.pop(TopicId(command.topic_id))
    tables.deleted_ids.add(topic.topic_id)
    del tables.by_name[topic.name]
    del tables.by_folded_name[folded_name(topic.name)]
    tables.partition_count -= topic.partition_count


def _add_partitions(tables: Tables, command: commands.AddPartitions) -> None:
    topic = tables.by_id[TopicId(command.topic_id)]
    topic.replicas += _nodes(command.replicas)
    tables.partition_count += len(command.replicas)


def _set_topic_configs(tables: Tables, command: commands.SetTopicConfigs) -> None:
    tables.by_id[TopicId(command.topic_id)].configs = command.configs


def _set_broker_configs(tables: Tables, command: commands.SetBrokerConfigs) -> None:
    node_id = None if command.node_id is None else NodeId(command.node_id)
    tables.broker_configs[node_id] = command.configs


def _reserve_producer_ids(tables: Tables, command: commands.ReserveProducerIds) -> None:
    check(command.next_producer_id > tables.next_producer_id, "producer ids went back")
    tables.next_producer_id = ProducerId(command.next_producer_id)


def _nodes(replicas: tuple[tuple[int, ...], ...]) -> tuple[tuple[NodeId, ...], ...]:
    return tuple(tuple(NodeId(node) for node in nodes) for nodes in replicas)
