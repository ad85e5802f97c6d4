"""Drives the rules of `transactions` on one partition of __transaction_state.

What is decided is appended and committed first; then the answers leave, and the markers are sent,
again and again until every partition has them. A new coordinator finds in the log what its
predecessor had decided, and goes on with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Protocol, TypeAlias, TypeVar

from kafkaesque.broker.partitions.coordinator_host import CoordinatorHost, parts_of
from kafkaesque.broker.partitions.partition import Partition
from kafkaesque.broker.transactions.registry import TransactionRegistry
from kafkaesque.broker.transactions.types import Effects, Markers, Moment
from kafkaesque.model.clock import Clock
from kafkaesque.model.errors import ErrorCode, KafkaError
from kafkaesque.model.ids import LeaderEpoch, Offset, TopicPartition
from kafkaesque.records.batch import BatchHeader
from kafkaesque.records.codec import Record, encode_batch

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


class TransactionHost(CoordinatorHost[TransactionRegistry, Moment, Effects]):
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
        delay_seconds = RETRY_SECONDS_FIRST
        while left:
            done = await self._send(markers._replace(partitions=tuple(sorted(left))), self.epoch)
            if done:
                left.difference_update(done)
                self._marked(markers, done)
                delay_seconds = RETRY_SECONDS_FIRST
            if left:
                await asyncio.sleep(delay_seconds)
                delay_seconds = min(2 * delay_seconds, RETRY_SECONDS_MAX)

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
