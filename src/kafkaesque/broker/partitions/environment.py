"""What the partitions of a node share: their loop, their clock, and whom they tell."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Generic, TypeVar

from kafkaesque.broker.partitions.changes import Changes
from kafkaesque.broker.replication.replica_set import ReplicaSet
from kafkaesque.model.clock import Clock
from kafkaesque.model.settings import TopicConfig

PartitionT = TypeVar("PartitionT")
"""Partition, which knows this module."""


@dataclass(frozen=True, slots=True)
class Environment(Generic[PartitionT]):
    """See the module's text. `validation` is the broker's setting: how closely batches are looked at."""

    loop: asyncio.AbstractEventLoop
    clock: Clock
    replicas: ReplicaSet
    standings: Changes[PartitionT]
    flush_always: bool
    validation: str

    def flush_messages(self, config: TopicConfig) -> int:
        """How many records may be unsynced and count as written all the same."""
        return 1 if self.flush_always else config.flush_messages
