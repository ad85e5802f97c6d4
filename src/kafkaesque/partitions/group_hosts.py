"""Consumer groups of this node, each on the partition of __consumer_offsets that its id hashes to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator

from kafkaesque.groups.registry import GroupRegistry
from kafkaesque.model.clock import Clock
from kafkaesque.model.errors import CoordinatorNotAvailable, KafkaError, NotCoordinator
from kafkaesque.model.ids import PartitionIndex
from kafkaesque.partitions.group_host import GroupHost
from kafkaesque.partitions.partition import Partition
from kafkaesque.partitions.partition_table import PartitionTable

GROUP_TOPIC = "__consumer_offsets"


def java_hash(text: str) -> int:
    """String.hashCode, made non-negative as Kafka does: where a group lives is part of the protocol
    for tools that read the topic."""
    value = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(data[::2], data[1::2], strict=True):
        value = (value * 31 + (high << 8 | low)) & 0xFFFFFFFF
    return value & 0x7FFFFFFF


class GroupHosts:
    """The hosts of the partitions of the group topic that this node leads."""

    __slots__ = ("_clock", "_hosts", "_loop", "_new_registry", "_partitions")

    def __init__(
        self,
        partitions: PartitionTable,
        new_registry: Callable[[], GroupRegistry],
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._partitions = partitions
        self._new_registry = new_registry
        self._clock = clock
        self._loop = loop
        self._hosts: dict[PartitionIndex, GroupHost] = {}

    def partition_of(self, group_id: str) -> PartitionIndex:
        """Where `group_id` lives, whichever node leads it."""
        count = self._partitions.partition_count(GROUP_TOPIC)
        if count == 0:
            raise CoordinatorNotAvailable("The coordinator is not available.")
        return PartitionIndex(java_hash(group_id) % count)

    def of_group(self, group_id: str) -> GroupHost:
        """The host of `group_id`. NotCoordinator unless this node is certain to lead it."""
        index = self.partition_of(group_id)
        try:
            partition = self._partitions.get(GROUP_TOPIC, index)
        except KafkaError:
            raise NotCoordinator("This is not the correct coordinator.") from None
        self.standing_changed(partition)
        return self._hosts[index]

    def __iter__(self) -> Iterator[GroupHost]:
        yield from tuple(self._hosts.values())

    def standing_changed(self, partition: Partition) -> None:
        """Begin to coordinate the groups of a partition that this node leads now, or cease to.

        A new term of ours is a new beginning: another node may have written in between.
        """
        index = partition.name.partition
        host = self._hosts.get(index)
        epoch = partition.leader_epoch if partition.leads else None
        if host is not None and host.epoch != epoch:
            self._hosts.pop(index).close(NotCoordinator("The coordinator has moved."))
            host = None
        if host is None and epoch is not None:
            self._hosts[index] = GroupHost(
                partition, self._new_registry, self._clock, self._loop, epoch
            )

    def expire_offsets(self) -> None:
        for host in self:
            host.carry_out(lambda registry, now: registry.expire_offsets(now.wall_ms))

    def topics_deleted(self, names: Collection[str]) -> None:
        for host in self:
            host.carry_out(lambda registry, _: registry.topics_deleted(names))

    def close(self) -> None:
        for host in self:
            host.close(CoordinatorNotAvailable("The broker is shutting down."))
