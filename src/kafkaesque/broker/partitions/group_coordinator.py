"""The group coordinator: runs the rules of `groups` on the partitions of __consumer_offsets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Sequence
from uuid import uuid4

from kafkaesque.broker.groups.config import GroupConfig
from kafkaesque.broker.groups.registry import GroupRegistry
from kafkaesque.broker.groups.types import CommitAnswer, CommitRequest, GroupEffects
from kafkaesque.broker.partitions.coordinator_runtime import (
    CoordinatorRuntime,
    CoordinatorShard,
    parts_of,
)
from kafkaesque.broker.partitions.partition import Partition
from kafkaesque.broker.partitions.partition_table import PartitionTable
from kafkaesque.broker.partitions.rules.markers import Marker, decode_marker_record, encode_marker
from kafkaesque.broker.partitions.rules.open_transactions import VerificationGuard
from kafkaesque.model.clock import Clock, Moment
from kafkaesque.model.ids import (
    NO_PRODUCER,
    LeaderEpoch,
    Offset,
    ProducerEpoch,
    ProducerIdentity,
    TopicPartition,
)
from kafkaesque.model.settings import BrokerConfig
from kafkaesque.records.batch import BatchHeader
from kafkaesque.records.codec import Record, encode_batch

GROUP_TOPIC = "__consumer_offsets"


_NO_SEQUENCE = -1
_NO_TRANSACTION = ProducerIdentity(NO_PRODUCER, ProducerEpoch(-1))


class GroupShard(CoordinatorShard[GroupRegistry, Moment, GroupEffects]):
    """One coordinator partition and the groups on it."""

    __slots__ = ()

    @property
    def partition_name(self) -> TopicPartition:
        return self._partition.name

    def knows(self, producer: ProducerIdentity) -> bool:
        """Returns whether the partition has state of this producer and epoch."""
        known = self._partition.producers.get(producer.producer_id)
        return known is not None and known.epoch == producer.epoch

    def needs_guard(self, producer: ProducerIdentity) -> bool:
        """Returns whether a commit would be the first of the producer's transaction on this
        partition."""
        return self._partition.producers.needs_guard(*producer)

    def guard(self, producer: ProducerIdentity) -> VerificationGuard:
        """Returns a guard to hold while the transaction coordinator verifies the producer, and to
        pass to the commit."""
        return self._partition.producers.transactions.guard(*producer, _NO_SEQUENCE)

    def holds(self, producer: ProducerIdentity, guard: VerificationGuard) -> bool:
        """Returns whether no marker was appended since `guard` was created."""
        return self._partition.producers.transactions.holds(producer.producer_id, guard)

    async def commit_in_transaction(
        self, request: CommitRequest, guard: VerificationGuard | None
    ) -> CommitAnswer:
        """Appends offsets that take effect when the producer's transaction commits. `guard` is as
        for any batch that begins a transaction in a partition."""
        producer = request.producer or _NO_TRANSACTION
        self._partition.producers.check_writer(producer.producer_id, producer.epoch, guard)
        return await self.ask(
            lambda registry, token, now: registry.commit_offsets(request, token, now), CommitAnswer
        )

    def append_marker(
        self, producer: ProducerIdentity, marker: Marker
    ) -> asyncio.Future[None] | None:
        """Ends a transaction here. Its offsets take effect, or are discarded, when the marker is
        committed."""
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

    # -- called by the base class ----------------------------------------------------------------

    def _now(self) -> Moment:
        return Moment(self._clock.monotonic(), self._clock.wall_ms())

    def _loaded(self, registry: GroupRegistry) -> None:
        registry.loaded(self._now())

    def _tick(self) -> None:
        self.carry_out(lambda registry, now: registry.tick(now))

    def _encode(self, effects: GroupEffects) -> Iterator[bytearray]:
        now_ms = self._clock.wall_ms()
        producer_id, epoch = effects.producer or _NO_TRANSACTION
        for part in parts_of(effects.records):
            yield encode_batch(
                [Record(Offset(0), now_ms, key, value) for key, value in part],
                producer_id=producer_id,
                producer_epoch=epoch,
                is_transactional=effects.producer is not None,
            )

    def _finish(self, registry: GroupRegistry, effects: GroupEffects) -> None:
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


class GroupCoordinator(CoordinatorRuntime[GroupShard]):
    """The shards of the group topic's partitions that this node leads."""

    __slots__ = ()

    def __init__(
        self,
        partitions: PartitionTable,
        new_registry: Callable[[], GroupRegistry],
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        def new_shard(partition: Partition, epoch: LeaderEpoch) -> GroupShard:
            return GroupShard(partition, new_registry, clock, loop, epoch)

        super().__init__(GROUP_TOPIC, partitions, new_shard)

    def of_group(self, group_id: str) -> GroupShard:
        """Returns the shard of `group_id`. Raises NotCoordinator unless this node is certain to
        lead it."""
        return self.of_key(group_id)

    def expire_offsets(self) -> None:
        for shard in self:
            shard.carry_out(lambda registry, now: registry.expire_offsets(now.wall_ms))

    def topics_deleted(self, names: Collection[str]) -> None:
        for shard in self:
            shard.carry_out(lambda registry, _: registry.topics_deleted(names))


def new_registry(config: BrokerConfig) -> GroupRegistry:
    """Creates the rules of groups with the broker's settings."""
    rules = GroupConfig(
        initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
        session_timeout_ms_min=config.group_min_session_timeout_ms,
        session_timeout_ms_max=config.group_max_session_timeout_ms,
        group_size_max=config.group_max_size,
        offsets_retention_ms=config.offsets_retention_minutes * 60_000,
        offset_metadata_length_max=config.offset_metadata_max_bytes,
    )
    return GroupRegistry(rules, lambda: str(uuid4()))
