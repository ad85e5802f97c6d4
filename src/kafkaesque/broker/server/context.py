"""The dependencies of the handlers."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkaesque.broker.cluster.cluster import Cluster
from kafkaesque.broker.cluster.rules.dynamic_config import DynamicConfig
from kafkaesque.broker.partitions.group_coordinator import GroupCoordinator
from kafkaesque.broker.partitions.log_cleaner import LogCleaner
from kafkaesque.broker.partitions.partition_table import PartitionTable
from kafkaesque.broker.server.page_loader import PageLoader
from kafkaesque.broker.server.rules.fetch_sessions import FetchSessions
from kafkaesque.broker.server.stats import BrokerStats
from kafkaesque.broker.server.transaction_calls import TransactionCalls
from kafkaesque.model.clock import Clock
from kafkaesque.model.ids import NodeId
from kafkaesque.model.settings import BrokerConfig

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class BrokerIdentity:
    """This node as clients see it."""

    cluster_id: str
    node_id: NodeId
    host: str
    port: int


@dataclass(slots=True)
class Context:
    identity: BrokerIdentity
    settings: DynamicConfig
    cluster: Cluster
    partitions: PartitionTable
    groups: GroupCoordinator
    transactions: TransactionCalls
    fetch_sessions: FetchSessions
    pages: PageLoader
    cleaner: LogCleaner
    clock: Clock
    loop: asyncio.AbstractEventLoop
    stats: BrokerStats
    api_ranges: Callable[[], list[tuple[int, int, int]]]
    """(key, lowest, highest version) of every advertised API."""
    unsent_room_bytes: Callable[[], int]
    """Returns how many more bytes of answers may wait for slow readers."""

    @property
    def config(self) -> BrokerConfig:
        """The settings in force now."""
        return self.settings.current
