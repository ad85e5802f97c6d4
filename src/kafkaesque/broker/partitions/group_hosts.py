"""Consumer groups of this node, each on the partition of __consumer_offsets that its id hashes to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from uuid import uuid4

from kafkaesque.broker.groups.config import GroupConfig
from kafkaesque.broker.groups.registry import GroupRegistry
from kafkaesque.broker.partitions.coordinator_hosts import CoordinatorHosts
from kafkaesque.broker.partitions.group_host import GroupHost
from kafkaesque.broker.partitions.partition import Partition
from kafkaesque.broker.partitions.partition_table import PartitionTable
from kafkaesque.model.clock import Clock
from kafkaesque.model.ids import LeaderEpoch
from kafkaesque.model.settings import BrokerConfig

GROUP_TOPIC = "__consumer_offsets"


class GroupHosts(CoordinatorHosts[GroupHost]):
    """The hosts of the partitions of the group topic that this node leads."""

    __slots__ = ()

    def __init__(
        self,
        partitions: PartitionTable,
        new_registry: Callable[[], GroupRegistry],
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        def new_host(partition: Partition, epoch: LeaderEpoch) -> GroupHost:
            return GroupHost(partition, new_registry, clock, loop, epoch)

        super().__init__(GROUP_TOPIC, partitions, new_host)

    def of_group(self, group_id: str) -> GroupHost:
        """The host of `group_id`. NotCoordinator unless this node is certain to lead it."""
        return self.of_key(group_id)

    def expire_offsets(self) -> None:
        for host in self:
            host.carry_out(lambda registry, now: registry.expire_offsets(now.wall_ms))

    def topics_deleted(self, names: Collection[str]) -> None:
        for host in self:
            host.carry_out(lambda registry, _: registry.topics_deleted(names))


def new_registry(config: BrokerConfig) -> GroupRegistry:
    """The rules of groups with the broker's settings."""
    rules = GroupConfig(
        initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
        session_timeout_ms_min=config.group_min_session_timeout_ms,
        session_timeout_ms_max=config.group_max_session_timeout_ms,
        group_size_max=config.group_max_size,
        offsets_retention_ms=config.offsets_retention_minutes * 60_000,
        offset_metadata_length_max=config.offset_metadata_max_bytes,
    )
    return GroupRegistry(rules, lambda: str(uuid4()))
