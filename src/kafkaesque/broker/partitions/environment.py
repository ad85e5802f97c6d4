"""Dependencies that the partitions of a node share."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Generic, TypeVar

from kafkaesque.broker.replication.replica_set import ReplicaSet
from kafkaesque.model.clock import Clock
from kafkaesque.model.settings import TopicConfig

T = TypeVar("T")


class Changes(Generic[T]):
    """A set of changed items that one consumer can wait for."""

    __slots__ = ("_changed", "_event")

    def __init__(self) -> None:
        self._changed: dict[T, None] = {}
        self._event = asyncio.Event()

    def add(self, item: T) -> None:
        self._changed[item] = None
        self._event.set()

    async def take(self) -> list[T]:
        """Returns the items added since the last call. Waits for the first."""
        await self._event.wait()
        self._event.clear()
        changed, self._changed = self._changed, {}
        return list(changed)


PartitionT = TypeVar("PartitionT")
"""In place of Partition, which imports this module."""


@dataclass(frozen=True, slots=True)
class Environment(Generic[PartitionT]):
    """The shared dependencies. `validation` is the broker's setting for how thoroughly batches are
    checked."""

    loop: asyncio.AbstractEventLoop
    clock: Clock
    replicas: ReplicaSet
    leadership_changes: Changes[PartitionT]
    flush_always: bool
    validation: str

    def flush_messages(self, config: TopicConfig) -> int:
        """Returns the number of unsynced records from which a log is synced; 1 syncs every
        batch."""
        return 1 if self.flush_always else config.flush_messages
