"""Consumer groups of this node, each on the partition of __consumer_offsets that its id hashes to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator

from kafkaesque.groups.registry import GroupRegistry
from kafkaesque.model.clock import Clock
from kafkaesque.model.errors import CoordinatorNotAvailable
from kafkaesque.model.ids import PartitionIndex
from kafkaesque.partitions.group_host import GroupHost
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
    """The hosts of all partitions of the group topic, made when first needed."""

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

    def open(self) -> None:
        """Load the groups of every partition that has any."""
        for partition in self._partitions.of_topic(GROUP_TOPIC):
            if partition.log_end_offset > partition.log_start_offset:
                self._host(partition.name.partition)

    def of_group(self, group_id: str) -> GroupHost:
        """The host of `group_id`."""
        count = len(self._partitions.of_topic(GROUP_TOPIC))
        if count == 0:
            raise CoordinatorNotAvailable("The coordinator is not available.")
        return self._host(PartitionIndex(java_hash(group_id) % count))

    def __iter__(self) -> Iterator[GroupHost]:
        """Every host that has, or may have, groups."""
        yield from tuple(self._hosts.values())

    def expire_offsets(self) -> None:
        for host in self:
            host.carry_out(lambda registry, now: registry.expire_offsets(now.wall_ms))

    def topics_deleted(self, names: Collection[str]) -> None:
        for host in self:
            host.carry_out(lambda registry, _: registry.topics_deleted(names))

    def close(self) -> None:
        for host in self:
            host.close()

    def _host(self, index: PartitionIndex) -> GroupHost:
        host = self._hosts.get(index)
        if host is None:
            partition = self._partitions.get(GROUP_TOPIC, index)
            host = GroupHost(partition, self._new_registry, self._clock, self._loop)
            self._hosts[index] = host
        return host
