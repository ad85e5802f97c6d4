"""Makes this node's partitions match the committed tables: opens, closes, deletes, configures."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final
from uuid import UUID

from kafkaesque.broker.cluster.controller_log import TableChange
from kafkaesque.broker.cluster.rules import commands
from kafkaesque.broker.cluster.rules.dynamic_config import DynamicConfig
from kafkaesque.broker.cluster.rules.tables import Tables
from kafkaesque.broker.cluster.rules.topology import ReplicaAssignment, Topic
from kafkaesque.broker.partitions.group_coordinator import GroupCoordinator
from kafkaesque.broker.partitions.partition_table import PartitionTable, Placement
from kafkaesque.broker.raft.types import NO_INDEX, LogIndex
from kafkaesque.broker.replication.commit_waiters import CommitWaiters
from kafkaesque.model.ids import MemberId, PartitionIndex, TopicId, node_of
from kafkaesque.model.settings import TopicConfig, topic_config

logger = logging.getLogger(__name__)

STUCK_CHECK_SECONDS: Final = 0.5


class ReconciledIndex:
    """The last entry of the controller's log that this node's partitions match."""

    __slots__ = ("_index", "_waiters")

    def __init__(self) -> None:
        self._index = NO_INDEX
        self._waiters: CommitWaiters[LogIndex] = CommitWaiters()

    def advance(self, index: LogIndex) -> None:
        self._index = index
        self._waiters.advance(index)

    async def wait_for(self, index: LogIndex) -> None:
        if index > self._index:
            await self._waiters.add(index)

    async def wait_for_unless(self, index: LogIndex, is_stuck: Callable[[], bool]) -> None:
        """Like `wait_for`, but returns as soon as this node `is_stuck`: the caller still gets the
        controller's answer."""
        reached = asyncio.ensure_future(self.wait_for(index))
        try:
            while not reached.done() and not is_stuck():
                await asyncio.wait((reached,), timeout=STUCK_CHECK_SECONDS)
        finally:
            reached.cancel()


class Reconciler:
    """Applies each change of the tables to the partitions, and to the settings in force."""

    __slots__ = ("_groups", "_member", "_partitions", "_settings", "_tables")

    def __init__(
        self,
        member: MemberId,
        tables: Tables,
        partitions: PartitionTable,
        groups: GroupCoordinator,
        settings: DynamicConfig,
    ) -> None:
        self._member = member
        self._tables = tables
        self._partitions = partitions
        self._groups = groups
        self._settings = settings

    async def reconcile(self, change: TableChange) -> None:
        """Follows one applied entry of the controller's log."""
        if change.commands is None:
            await self.reconcile_all()
            return
        for command in change.commands:
            await self._follow(command)

    async def reconcile_all(self) -> None:
        """Compares everything with the tables, which may have been replaced as a whole."""
        self._load_settings()
        alive = self._tables.by_id
        for topic_id in self._partitions.topic_ids():
            if topic_id not in alive:
                await self._delete(topic_id)
        for topic in tuple(alive.values()):
            await self._match(topic)
            self._partitions.set_config(topic.topic_id, self._topic_config(topic))

    async def _follow(self, command: commands.Command) -> None:
        match command:
            case (
                commands.CreateTopic(topic_id=topic_id)
                | commands.AddPartitions(topic_id=topic_id)
                | commands.CompleteReassignment(topic_id=topic_id)
            ):
                await self._match_if_exists(topic_id)
            case commands.SetReassignments(changes=changes):
                for change in changes:
                    await self._match_if_exists(change.topic_id)
            case commands.DeleteTopic(topic_id=topic_id):
                await self._delete(TopicId(topic_id))
            case commands.SetTopicConfigs(topic_id=topic_id):
                self._set_config(topic_id)
            case commands.SetBrokerConfigs():
                self._load_settings()
                for topic_id in tuple(self._tables.by_id):
                    self._set_config(topic_id)

    def _load_settings(self) -> None:
        for reason in self._settings.load(self._tables.broker_configs):
            logger.warning("ignored a stored dynamic setting: %s", reason)

    def _set_config(self, topic_id: UUID) -> None:
        topic = self._tables.by_id.get(TopicId(topic_id))
        if topic is not None:
            self._partitions.set_config(topic.topic_id, self._topic_config(topic))

    async def _match_if_exists(self, topic_id: UUID) -> None:
        """A later command, already in the tables, may have deleted the topic."""
        topic = self._tables.by_id.get(TopicId(topic_id))
        if topic is not None:
            await self._match(topic)

    async def _match(self, topic: Topic) -> None:
        partitions = self._partitions
        config = self._topic_config(topic)
        partitions.know(topic.name, topic.topic_id, topic.partition_count, config)
        mine = self._placements(topic)
        await partitions.open(topic.topic_id, mine)
        wanted = {place.index for place in mine}
        for index in partitions.hosted(topic.topic_id):
            if index not in wanted:
                await partitions.close_partition(topic.topic_id, index)

    def _placements(self, topic: Topic) -> list[Placement]:
        """The partitions of `topic` that belong on this node."""
        return [
            _placement(PartitionIndex(index), assignment, self._member)
            for index, assignment in enumerate(topic.partitions)
            if node_of(self._member) in assignment.all_replicas
        ]

    async def _delete(self, topic_id: TopicId) -> None:
        name = await self._partitions.delete(topic_id)
        if name is not None:
            self._groups.topics_deleted([name])

    def _topic_config(self, topic: Topic) -> TopicConfig:
        return topic_config(topic.configs, self._settings.current)


def _placement(index: PartitionIndex, assignment: ReplicaAssignment, member: MemberId) -> Placement:
    """An initial member of the group starts it; any other member joins it."""
    first = assignment.initial_members
    return Placement(index, assignment.group_id, first if member in first else ())
