"""The control plane of this node: operations in, committed changes and matching partitions out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar
from uuid import UUID

from kafkaesque.cluster import commands
from kafkaesque.cluster.controller import Controller, Outcome
from kafkaesque.cluster.journal import Journal
from kafkaesque.cluster.tables import Tables, Topic
from kafkaesque.model.ids import NodeId, ProducerId, TopicId
from kafkaesque.model.setting import SettingValue
from kafkaesque.model.settings import (
    BROKER_SETTINGS,
    BrokerConfig,
    TopicConfig,
    broker_config_attribute,
    topic_config,
)
from kafkaesque.partitions.group_hosts import GroupHosts
from kafkaesque.partitions.partition_table import PartitionTable

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Cluster:
    """`static` are the settings the process was started with; `config` those now in force."""

    __slots__ = (
        "_journal",
        "_producer_ids",
        "config",
        "controller",
        "groups",
        "node_id",
        "partitions",
        "static",
    )

    def __init__(
        self,
        journal: Journal,
        partitions: PartitionTable,
        groups: GroupHosts,
        static: BrokerConfig,
        new_topic_id: Callable[[], UUID],
    ) -> None:
        self._journal = journal
        self.partitions = partitions
        self.groups = groups
        self._producer_ids = range(0)
        self.node_id = NodeId(static.node_id)
        self.static = static
        self.config = static
        self.controller = Controller(
            journal.tables, static, nodes=lambda: (self.node_id,), new_topic_id=new_topic_id
        )

    @property
    def tables(self) -> Tables:
        return self._journal.tables

    def load(self) -> None:
        """Replay the journal and open every partition it names. Blocking."""
        self._journal.load()
        self._take_broker_configs()
        self.partitions.remove_leftovers(self.tables.deleted_ids, self.tables.by_id)
        for topic in self.tables.by_name.values():
            opened = self.partitions.open_blocking(
                topic.name,
                topic.topic_id,
                topic.partition_count,
                self.topic_config(topic),
                is_new=False,
            )
            self.partitions.add(topic.name, topic.topic_id, opened)

    def topic_config(self, topic: Topic) -> TopicConfig:
        return topic_config(topic.configs, self.config)

    async def submit(self, operation: Callable[[Controller], Outcome[T]]) -> T:
        """Commit what `operation` decides and bring this node in line with it."""
        return await self._journal.submit(lambda: operation(self.controller), self._reconcile)

    async def close(self) -> None:
        """Finish what is under way and close the journal."""
        await self._journal.close()

    async def next_producer_id(self) -> ProducerId:
        """An id that no producer of this cluster ever had."""
        while not self._producer_ids:
            reserved = await self.submit(Controller.reserve_producer_ids)
            # Another request may have waited for the same reservation: keep the older block.
            if not self._producer_ids:
                self._producer_ids = reserved
        first, self._producer_ids = self._producer_ids[0], self._producer_ids[1:]
        return ProducerId(first)

    async def _reconcile(self, applied: Sequence[commands.Command]) -> None:
        for command in applied:
            match command:
                case commands.CreateTopic(name=name):
                    await self._open(self.tables.by_name[name])
                case commands.AddPartitions(topic_id=topic_id):
                    await self._open(self._topic(topic_id))
                case commands.DeleteTopic(topic_id=topic_id):
                    name = await self.partitions.delete(TopicId(topic_id))
                    self.groups.topics_deleted([name])
                case commands.SetTopicConfigs(topic_id=topic_id):
                    topic = self._topic(topic_id)
                    self.partitions.set_config(topic.name, self.topic_config(topic))
                case commands.SetBrokerConfigs():
                    self._take_broker_configs()
                    for topic in self.tables.by_name.values():
                        self.partitions.set_config(topic.name, self.topic_config(topic))

    def _topic(self, topic_id: UUID) -> Topic:
        return self.tables.by_id[TopicId(topic_id)]

    async def _open(self, topic: Topic) -> None:
        await self.partitions.open(
            topic.name, topic.topic_id, topic.partition_count, self.topic_config(topic)
        )

    def _take_broker_configs(self) -> None:
        """Kafka's order: this broker's own dynamic value, the cluster's, the file's."""
        values: dict[str, SettingValue] = {}
        for node_id in (None, self.node_id):
            for name, text in self.tables.broker_configs.get(node_id, {}).items():
                values[broker_config_attribute(name)] = BROKER_SETTINGS[name].parse(text)
        self.config = replace(self.static, **values)  # type: ignore[arg-type]
        self.controller.config = self.config
