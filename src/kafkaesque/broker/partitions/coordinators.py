"""The two coordinators that run on internal topics: consumer groups and transactions."""

from __future__ import annotations

from kafkaesque.broker.partitions.group_coordinator import GroupCoordinator
from kafkaesque.broker.partitions.partition import Partition
from kafkaesque.broker.partitions.transaction_coordinator import TransactionCoordinator


class Coordinators:
    """Passes on what concerns both."""

    __slots__ = ("groups", "transactions")

    def __init__(self, groups: GroupCoordinator, transactions: TransactionCoordinator) -> None:
        self.groups = groups
        self.transactions = transactions

    def leadership_changed(self, partition: Partition) -> None:
        """Handles a change of leadership of a partition, perhaps of an internal topic."""
        topic = partition.name.topic
        if topic == self.groups.topic:
            self.groups.leadership_changed(partition)
        elif topic == self.transactions.topic:
            self.transactions.leadership_changed(partition)

    def expire(self) -> None:
        """Removes expired offsets and transactional ids."""
        self.groups.expire_offsets()
        self.transactions.expire_ids()

    def close(self) -> None:
        self.groups.close()
        self.transactions.close()
