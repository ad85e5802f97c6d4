"""The transaction coordinator: runs the rules of `transactions` on __transaction_state.

A decision is appended and committed first. Then the answers are sent, and the markers are written,
with retries until every partition has them. A new coordinator finds its predecessor's decisions in
the log and completes them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import Protocol, TypeAlias, TypeVar

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
from kafkaesque.broker.transactions.types import Markers, TransactionEffects
from kafkaesque.model.backoff import Backoff
from kafkaesque.model.clock import Clock, Moment
from kafkaesque.model.errors import ErrorCode, KafkaError
from kafkaesque.model.ids import NO_TIMESTAMP, LeaderEpoch, Offset, ProducerIdentity, TopicPartition
from kafkaesque.records.batch import BatchHeader
from kafkaesque.records.codec import Record, encode_batch

TRANSACTION_TOPIC = "__transaction_state"


RETRY_SECONDS_FIRST = 0.01
RETRY_SECONDS_MAX = 0.2
ENDING_SECONDS_MAX = 0.5
"""How long a request waits for the markers of an ending transaction. They take longer if a
partition has no leader; then the client gets CONCURRENT_TRANSACTIONS."""


class MarkerWriter:
    """Appends transaction markers to partitions that this node leads."""

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
        """Appends the marker to each partition. Returns NONE for each one where it is committed.

        All are appended before any commit is awaited, so that markers are written in the order of
        the calls: a repeated marker never arrives after the next transaction.
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
            # Repeated: the earlier marker must be committed before this is answered.
            end_offset = partition.replica.next_offset
            written = Appended(end_offset, end_offset, NO_TIMESTAMP, partition.log_start_offset)
            return partition.commit(written, all_replicas=True)
        if name.topic == self._groups.topic:
            return self._groups.at(name.partition).append_marker(producer, marker)
        batch = encode_marker(*producer, marker, self._clock.wall_ms())
        return partition.commit(partition.append_own(batch), all_replicas=True)


class HasError(Protocol):
    @property
    def error(self) -> ErrorCode: ...


A = TypeVar("A", bound=HasError)

SendMarkers: TypeAlias = Callable[[Markers, LeaderEpoch], Awaitable[Collection[TopicPartition]]]
"""Writes markers, with the coordinator's epoch, to their partitions on any node. Returns the
partitions that have them now or need them no more. Does not raise for errors that a retry may
fix."""


class TransactionShard(CoordinatorShard[TransactionRegistry, Moment, TransactionEffects]):
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
        """The tasks that write the markers, by transactional id."""
        super().__init__(partition, new_registry, clock, loop, epoch)

    @property
    def ending_count(self) -> int:
        """The number of decided transactions whose markers are not all written yet."""
        return len(self._sending)

    async def ask_when_ended(
        self,
        transactional_id: str,
        decide: Callable[[TransactionRegistry, int, Moment], TransactionEffects],
        answer: type[A],
    ) -> A:
        """As `ask`, but waits for a transaction that is ending.

        Kafka's coordinator returns CONCURRENT_TRANSACTIONS at once, and clients retry 20 to 100 ms
        later. The markers are usually written within a few milliseconds.
        """
        result = await self.ask(decide, answer)
        sending = self._sending.get(transactional_id)
        if result.error is ErrorCode.CONCURRENT_TRANSACTIONS and sending is not None:
            await asyncio.wait((sending,), timeout=ENDING_SECONDS_MAX)
            result = await self.ask(decide, answer)
        return result

    async def _send_all(self, markers: Markers) -> None:
        """Writes markers until all partitions have them. Cancelled when the registry is dropped."""
        remaining = set(markers.partitions)
        backoff = Backoff(RETRY_SECONDS_FIRST, RETRY_SECONDS_MAX)
        while remaining:
            done = await self._send(
                markers._replace(partitions=tuple(sorted(remaining))), self.epoch
            )
            if done:
                remaining.difference_update(done)
                self._marked(markers, done)
                backoff.reset()
            if remaining:
                await asyncio.sleep(backoff.next_s())

    def _marked(self, markers: Markers, done: Collection[TopicPartition]) -> None:
        self.carry_out(
            lambda registry, now: registry.markers_written(
                markers.transactional_id, markers.producer, done, now
            )
        )

    # -- called by the base class ----------------------------------------------------------------

    def _now(self) -> Moment:
        return Moment(self._clock.monotonic(), self._clock.wall_ms())

    def _loaded(self, registry: TransactionRegistry) -> None:
        self._carry_out(registry.loaded(self._now()))

    def _tick(self) -> None:
        self.carry_out(lambda registry, now: registry.tick(now))

    def _encode(self, effects: TransactionEffects) -> Iterator[bytearray]:
        now_ms = self._clock.wall_ms()
        for part in parts_of(effects.records):
            yield encode_batch([Record(Offset(0), now_ms, key, value) for key, value in part])

    def _finish(self, registry: TransactionRegistry, effects: TransactionEffects) -> None:
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


class TransactionCoordinator(CoordinatorRuntime[TransactionShard]):
    """The shards of the transaction topic's partitions that this node leads."""

    __slots__ = ()

    def __init__(
        self,
        partitions: PartitionTable,
        new_registry: Callable[[], TransactionRegistry],
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        send: SendMarkers,
    ) -> None:
        def new_shard(partition: Partition, epoch: LeaderEpoch) -> TransactionShard:
            return TransactionShard(partition, new_registry, clock, loop, epoch, send)

        super().__init__(TRANSACTION_TOPIC, partitions, new_shard)

    def expire_ids(self) -> None:
        for shard in self:
            shard.carry_out(lambda registry, now: registry.expire_ids(now))
