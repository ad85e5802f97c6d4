"""Drives the rules of `transactions` on one partition of __transaction_state.

What is decided is appended and committed first; then the answers leave, and the markers are sent,
again and again until every partition has them. A new coordinator finds in the log what its
predecessor had decided, and goes on with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import Protocol, TypeAlias, TypeVar

from kafkaesque.broker.groups.types import ProducerIdentity
from kafkaesque.broker.partitions.coordinator_runtime import (
    CoordinatorRuntime,
    CoordinatorShard,
    parts_of,
)
from kafkaesque.broker.partitions.group_coordinator import GroupCoordinator
from kafkaesque.broker.partitions.partition import Partition
from kafkaesque.broker.partitions.partition_table import PartitionTable
from kafkaesque.broker.partitions.rules.admission import Appended
from kafkaesque.broker.partitions.rules.markers import Marker, encode_marker
from kafkaesque.broker.transactions.registry import TransactionRegistry
from kafkaesque.broker.transactions.types import Effects, Markers, Moment
from kafkaesque.model.backoff import Backoff
from kafkaesque.model.clock import Clock
from kafkaesque.model.errors import ErrorCode, KafkaError
from kafkaesque.model.ids import NO_TIMESTAMP, LeaderEpoch, Offset, TopicPartition
from kafkaesque.records.batch import BatchHeader
from kafkaesque.records.codec import Record, encode_batch


class MarkerWriter:
    __slots__ = ("_clock", "_groups", "_partitions")

    def __init__(self, partitions: PartitionTable, groups: GroupCoordinator, clock: Clock) -> None:
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


RETRY_SECONDS_FIRST = 0.01
RETRY_SECONDS_MAX = 0.2
ENDING_SECONDS_MAX = 0.5
"""A partition without a leader keeps markers waiting for longer: then the client is told."""


class Told(Protocol):
    @property
    def error(self) -> ErrorCode: ...


A = TypeVar("A", bound=Told)

SendMarkers: TypeAlias = Callable[[Markers, LeaderEpoch], Awaitable[Collection[TopicPartition]]]
"""Writes markers, with the epoch of the coordinator, wherever their partitions are; which of the
partitions have them now, or need them no more. Never raises for what may be better next time."""


class TransactionShard(CoordinatorShard[TransactionRegistry, Moment, Effects]):
    """One coordinator partition and the transactional ids on it."""

    __slots__ = ("_send", "_sending")

    def __init__(
        self,
        partition: Partition,
        new_registry: Callable[[], TransactionRegistry],
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        epoch: LeaderEpoch,
        send: SendMarkers,
    ) -> None:
        self._send = send
        self._sending: dict[str, asyncio.Task[None]] = {}
        """Who writes the markers of a transactional id."""
        super().__init__(partition, new_registry, clock, loop, epoch)

    @property
    def ending_count(self) -> int:
        """Transactions that are decided and whose markers are not all written yet."""
        return len(self._sending)

    async def ask_when_ended(
        self,
        transactional_id: str,
        decide: Callable[[TransactionRegistry, int, Moment], Effects],
        answer: type[A],
    ) -> A:
        """As `ask`, but a transaction that is just ending is waited for.

        Kafka's coordinator says CONCURRENT_TRANSACTIONS at once, and clients ask again 20 to 100 ms
        later; the markers are mostly there within a few.
        """
        told = await self.ask(decide, answer)
        sending = self._sending.get(transactional_id)
        if told.error is ErrorCode.CONCURRENT_TRANSACTIONS and sending is not None:
            await asyncio.wait((sending,), timeout=ENDING_SECONDS_MAX)
            told = await self.ask(decide, answer)
        return told

    async def _send_all(self, markers: Markers) -> None:
        """Until all partitions have them; whoever drops the registry cancels this."""
        left = set(markers.partitions)
        backoff = Backoff(RETRY_SECONDS_FIRST, RETRY_SECONDS_MAX)
        while left:
            done = await self._send(markers._replace(partitions=tuple(sorted(left))), self.epoch)
            if done:
                left.difference_update(done)
                self._marked(markers, done)
                backoff.reset()
            if left:
                await asyncio.sleep(backoff.next_s())

    def _marked(self, markers: Markers, done: Collection[TopicPartition]) -> None:
        self.carry_out(
            lambda registry, now: registry.markers_written(
                markers.transactional_id, markers.producer, done, now
            )
        )

    # -- what the host asks for -------------------------------------------------------------------

    def _now(self) -> Moment:
        return Moment(self._clock.monotonic(), self._clock.wall_ms())

    def _loaded(self, registry: TransactionRegistry) -> None:
        self._carry_out(registry.loaded(self._now()))

    def _tick(self) -> None:
        self.carry_out(lambda registry, now: registry.tick(now))

    def _encode(self, effects: Effects) -> Iterator[bytearray]:
        now_ms = self._clock.wall_ms()
        for part in parts_of(effects.records):
            yield encode_batch([Record(Offset(0), now_ms, key, value) for key, value in part])

    def _finish(self, registry: TransactionRegistry, effects: Effects) -> None:
        for key, value in effects.records:
            registry.replay(key, value)
        for markers in effects.markers:
            task = self._loop.create_task(self._send_all(markers))
            self._sending[markers.transactional_id] = task
            task.add_done_callback(partial(self._sent, markers.transactional_id))

    def _sent(self, transactional_id: str, task: asyncio.Task[None]) -> None:
        if self._sending.get(transactional_id) is task:
            del self._sending[transactional_id]

    def _replay_batch(
        self, registry: TransactionRegistry, header: BatchHeader, records: Sequence[Record]
    ) -> None:
        for record in records:
            registry.replay(record.key or b"", record.value)

    def _drop(self, error: KafkaError) -> None:
        for task in tuple(self._sending.values()):
            task.cancel()
        super()._drop(error)


TRANSACTION_TOPIC = "__transaction_state"


class TransactionCoordinator(CoordinatorRuntime[TransactionShard]):
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
        def new_host(partition: Partition, epoch: LeaderEpoch) -> TransactionShard:
            return TransactionShard(partition, new_registry, clock, loop, epoch, send)

        super().__init__(TRANSACTION_TOPIC, partitions, new_host)

    def expire_ids(self) -> None:
        for host in self:
            host.carry_out(lambda registry, now: registry.expire_ids(now))
