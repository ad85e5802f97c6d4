"""Drives the rules of `groups` on one partition of __consumer_offsets."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

from kafkaesque.broker.groups.registry import GroupRegistry
from kafkaesque.broker.groups.types import (
    CommitAnswer,
    CommitRequest,
    Effects,
    Moment,
    ProducerIdentity,
)
from kafkaesque.broker.partitions.coordinator_host import CoordinatorHost, parts_of
from kafkaesque.broker.partitions.rules.markers import Marker, decode_marker_record, encode_marker
from kafkaesque.broker.partitions.rules.open_transactions import Guard
from kafkaesque.model.ids import NO_PRODUCER, Offset, ProducerEpoch, TopicPartition
from kafkaesque.records.batch import BatchHeader
from kafkaesque.records.codec import Record, encode_batch

_NO_SEQUENCE = -1
_NO_TRANSACTION = ProducerIdentity(NO_PRODUCER, ProducerEpoch(-1))


class GroupHost(CoordinatorHost[GroupRegistry, Moment, Effects]):
    """One coordinator partition and the groups on it."""

    __slots__ = ()

    @property
    def partition_name(self) -> TopicPartition:
        return self._partition.name

    def knows(self, producer: ProducerIdentity) -> bool:
        """Whether a transaction of the producer has left its traces here."""
        known = self._partition.producers.get(producer.producer_id)
        return known is not None and known.epoch == producer.epoch

    def needs_guard(self, producer: ProducerIdentity) -> bool:
        """Whether a commit would be the first of the producer's transaction on this partition."""
        return self._partition.producers.needs_guard(*producer)

    def guard(self, producer: ProducerIdentity) -> Guard:
        """To be held while the transaction's coordinator is asked, and brought to the commit."""
        return self._partition.producers.transactions.guard(*producer, _NO_SEQUENCE)

    def holds(self, producer: ProducerIdentity, guard: Guard) -> bool:
        """Whether no marker came since `guard` was given."""
        return self._partition.producers.transactions.holds(producer.producer_id, guard)

    async def commit_in_transaction(
        self, request: CommitRequest, guard: Guard | None
    ) -> CommitAnswer:
        """Offsets that count when the producer's transaction commits. `guard` as for any batch
        that begins a transaction in a partition."""
        producer = request.producer or _NO_TRANSACTION
        self._partition.producers.check_writer(producer.producer_id, producer.epoch, guard)
        return await self.ask(
            lambda registry, token, now: registry.commit_offsets(request, token, now), CommitAnswer
        )

    def append_marker(
        self, producer: ProducerIdentity, marker: Marker
    ) -> asyncio.Future[None] | None:
        """End a transaction here: its offsets count, or are forgotten, when the marker is committed."""
        self.reading()
        batch = encode_marker(*producer, marker, self._clock.wall_ms())
        commit = self._partition.commit(self._partition.append_own(batch), all_replicas=True)
        self._after(
            commit,
            lambda registry: registry.replay_marker(
                producer.producer_id, is_commit=marker.is_commit
            ),
        )
        return commit

    # -- what the host asks for -------------------------------------------------------------------

    def _now(self) -> Moment:
        return Moment(self._clock.monotonic(), self._clock.wall_ms())

    def _loaded(self, registry: GroupRegistry) -> None:
        registry.loaded(self._now())

    def _tick(self) -> None:
        self.carry_out(lambda registry, now: registry.tick(now))

    def _encode(self, effects: Effects) -> Iterator[bytearray]:
        now_ms = self._clock.wall_ms()
        producer_id, epoch = effects.producer or _NO_TRANSACTION
        for part in parts_of(effects.records):
            yield encode_batch(
                [Record(Offset(0), now_ms, key, value) for key, value in part],
                producer_id=producer_id,
                producer_epoch=epoch,
                is_transactional=effects.producer is not None,
            )

    def _finish(self, registry: GroupRegistry, effects: Effects) -> None:
        for key, value in effects.records:
            if effects.producer is None:
                registry.replay(key, value)
            else:
                registry.replay_pending(effects.producer.producer_id, key, value)

    def _replay_batch(
        self, registry: GroupRegistry, header: BatchHeader, records: Sequence[Record]
    ) -> None:
        for record in records:
            if header.is_control:
                marker = decode_marker_record(record)
                if marker is not None:
                    registry.replay_marker(header.producer_id, is_commit=marker.is_commit)
            elif header.is_transactional:
                registry.replay_pending(header.producer_id, record.key or b"", record.value)
            else:
                registry.replay(record.key or b"", record.value)
