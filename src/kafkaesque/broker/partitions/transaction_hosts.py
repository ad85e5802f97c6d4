"""Transactional ids of this node, each on the partition of __transaction_state that it hashes to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kafkaesque.broker.partitions.coordinator_hosts import CoordinatorHosts
from kafkaesque.broker.partitions.partition import Partition
from kafkaesque.broker.partitions.partition_table import PartitionTable
from kafkaesque.broker.partitions.transaction_host import SendMarkers, TransactionHost
from kafkaesque.broker.transactions.registry import TransactionRegistry
from kafkaesque.model.clock import Clock
from kafkaesque.model.ids import LeaderEpoch

TRANSACTION_TOPIC = "__transaction_state"


class TransactionHosts(CoordinatorHosts[TransactionHost]):
    """The hosts of the partitions of the transaction topic that this node leads."""

    __slots__ = ()

    def __init__(
        self,
        partitions: PartitionTable,
        new_registry: Callable[[], TransactionRegistry],
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        send: SendMarkers,
    ) -> None:
        def new_host(partition: Partition, epoch: LeaderEpoch) -> TransactionHost:
            return TransactionHost(partition, new_registry, clock, loop, epoch, send)

        super().__init__(TRANSACTION_TOPIC, partitions, new_host)

    def expire_ids(self) -> None:
        for host in self:
            host.carry_out(lambda registry, now: registry.expire_ids(now))
