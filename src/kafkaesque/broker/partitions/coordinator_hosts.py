"""The hosts of an internal topic: each key lives on the partition that it hashes to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar

from kafkaesque.broker.partitions.partition import Partition
from kafkaesque.broker.partitions.partition_table import PartitionTable
from kafkaesque.model.errors import CoordinatorNotAvailable, KafkaError, NotCoordinator
from kafkaesque.model.ids import LeaderEpoch, PartitionIndex


class Host(Protocol):
    @property
    def epoch(self) -> LeaderEpoch: ...

    def close(self, reason: KafkaError) -> None: ...


HostT = TypeVar("HostT", bound=Host)


def java_hash(text: str) -> int:
    """String.hashCode, made non-negative as Kafka does: where a key lives is part of the protocol
    for tools that read the topic."""
    value = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(data[::2], data[1::2], strict=True):
        value = (value * 31 + (high << 8 | low)) & 0xFFFFFFFF
    return value & 0x7FFFFFFF


class CoordinatorHosts(Generic[HostT]):
    """The hosts of the partitions of one topic that this node leads."""

    __slots__ = ("_hosts", "_new_host", "_partitions", "topic")

    def __init__(
        self,
        topic: str,
        partitions: PartitionTable,
        new_host: Callable[[Partition, LeaderEpoch], HostT],
    ) -> None:
        self.topic = topic
        self._partitions = partitions
        self._new_host = new_host
        self._hosts: dict[PartitionIndex, HostT] = {}

    def partition_of(self, key: str) -> PartitionIndex:
        """Where `key` lives, whichever node leads it."""
        count = self._partitions.partition_count(self.topic)
        if count == 0:
            raise CoordinatorNotAvailable("The coordinator is not available.")
        return PartitionIndex(java_hash(key) % count)

    def of_key(self, key: str) -> HostT:
        """The host of `key`. NotCoordinator unless this node is certain to lead it."""
        return self.at(self.partition_of(key))

    def at(self, index: PartitionIndex) -> HostT:
        try:
            partition = self._partitions.get(self.topic, index)
        except KafkaError:
            raise NotCoordinator("This is not the correct coordinator.") from None
        self.standing_changed(partition)
        return self._hosts[index]

    def __iter__(self) -> Iterator[HostT]:
        yield from tuple(self._hosts.values())

    def standing_changed(self, partition: Partition) -> None:
        """Begin to coordinate what lives on a partition that this node leads now, or cease to.

        A new term of ours is a new beginning: another node may have written in between.
        """
        index = partition.name.partition
        host = self._hosts.get(index)
        epoch = partition.leader_epoch if partition.leads else None
        if host is not None and host.epoch != epoch:
            self._hosts.pop(index).close(NotCoordinator("The coordinator has moved."))
            host = None
        if host is None and epoch is not None:
            self._hosts[index] = self._new_host(partition, epoch)

    def close(self) -> None:
        for host in self:
            host.close(CoordinatorNotAvailable("The broker is shutting down."))
