"""Writes the ends of transactions to the partitions that this node leads."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from kafkaesque.broker.groups.types import ProducerIdentity
from kafkaesque.broker.partitions.group_hosts import GroupHosts
from kafkaesque.broker.partitions.partition_table import PartitionTable
from kafkaesque.broker.partitions.rules.appended import Appended
from kafkaesque.broker.partitions.rules.markers import Marker, encode_marker
from kafkaesque.model.clock import Clock
from kafkaesque.model.errors import ErrorCode, KafkaError
from kafkaesque.model.ids import NO_TIMESTAMP, TopicPartition


class MarkerWriter:
    __slots__ = ("_clock", "_groups", "_partitions")

    def __init__(self, partitions: PartitionTable, groups: GroupHosts, clock: Clock) -> None:
        self._partitions = partitions
        self._groups = groups
        self._clock = clock

    async def write(
        self,
        producer: ProducerIdentity,
        marker: Marker,
        partitions: Iterable[TopicPartition],
        *,
        is_epoch_new: bool,
    ) -> dict[TopicPartition, ErrorCode]:
        """NONE for each partition where the marker is committed.

        All are appended before anything is waited for, so that markers are written in the order
        in which they come: one that is repeated never arrives behind the next transaction.
        """
        results: dict[TopicPartition, ErrorCode] = {}
        commits: dict[TopicPartition, asyncio.Future[None]] = {}
        for name in partitions:
            try:
                commit = self._append(name, producer, marker, is_epoch_new=is_epoch_new)
            except KafkaError as error:
                results[name] = error.code
            else:
                results[name] = ErrorCode.NONE
                if commit is not None:
                    commits[name] = commit
        if commits:
            await asyncio.wait(commits.values())
        for name, commit in commits.items():
            if isinstance(failure := commit.exception(), KafkaError):
                results[name] = failure.code
        return results

    def _append(
        self,
        name: TopicPartition,
        producer: ProducerIdentity,
        marker: Marker,
        *,
        is_epoch_new: bool,
    ) -> asyncio.Future[None] | None:
        partition = self._partitions.get(*name)
        is_due = partition.producers.judge_marker(
            *producer, marker.coordinator_epoch, is_epoch_new=is_epoch_new
        )
        if not is_due:
            # Repeated: it must be committed all the same before that is said.
            end_offset = partition.replica.next_offset
            written = Appended(end_offset, end_offset, NO_TIMESTAMP, partition.log_start_offset)
            return partition.commit(written, all_replicas=True)
        if name.topic == self._groups.topic:
            return self._groups.at(name.partition).append_marker(producer, marker)
        batch = encode_marker(*producer, marker, self._clock.wall_ms())
        return partition.commit(partition.append_own(batch), all_replicas=True)
