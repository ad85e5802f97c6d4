"""Runs a coordinator on the partitions of its internal topic.

A `CoordinatorShard` is the coordinator on one partition. Its registry (the rules) makes decisions;
the shard appends them to the partition, waits for the commit, and only then sends the answers, in
the order of the decisions. `CoordinatorRuntime` holds the shards of the partitions that this node
leads. Everything runs on the event loop, except reading the log when loading. `group_coordinator`
and `transaction_coordinator` have the two kinds of shards.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from time import monotonic
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from kafkaesque.broker.partitions.partition import Partition
from kafkaesque.broker.partitions.partition_table import PartitionTable
from kafkaesque.model.clock import Clock
from kafkaesque.model.errors import (
    CoordinatorLoading,
    CoordinatorNotAvailable,
    KafkaError,
    NotCoordinator,
    NotLeaderOrFollower,
)
from kafkaesque.model.ids import LeaderEpoch, Offset, PartitionIndex
from kafkaesque.model.limits import KIB
from kafkaesque.records.batch import BatchHeader, read_header
from kafkaesque.records.codec import Record, decode_batch

logger = logging.getLogger(__name__)

A = TypeVar("A")
RecordT = TypeVar("RecordT", bound=tuple[bytes, bytes | None])

_READ_BYTES = 1 << 20
BATCH_BYTES_MAX = 512 * KIB
RECORD_OVERHEAD_BYTES = 32
"""An upper bound for the lengths, deltas and counts of a record."""


class Registry(Protocol):
    """The rules of a coordinator, as the shard uses them."""

    def replay(self, key: bytes, value: bytes | None) -> None: ...

    def cancel(self, token: int) -> None: ...

    def next_deadline(self) -> float | None: ...


class Effects(Protocol):
    """The result of a decision. Each package of rules has its own type."""

    @property
    def records(self) -> Sequence[tuple[bytes, bytes | None]]: ...

    @property
    def answers(self) -> Sequence[tuple[int, Any]]: ...


RegistryT = TypeVar("RegistryT", bound=Registry)
EffectsT = TypeVar("EffectsT", bound=Effects)
MomentT = TypeVar("MomentT")


def java_hash(text: str) -> int:
    """Java's String.hashCode, made non-negative as Kafka does. The placement of a key is part of
    the protocol for tools that read the topic."""
    value = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(data[::2], data[1::2], strict=True):
        value = (value * 31 + (high << 8 | low)) & 0xFFFFFFFF
    return value & 0x7FFFFFFF


def parts_of(records: Sequence[RecordT]) -> Iterator[Sequence[RecordT]]:
    """Splits `records` so that no part makes a batch larger than an internal topic accepts."""
    start = size_bytes = 0
    for index, (key, value) in enumerate(records):
        size_bytes += len(key) + len(value or b"") + RECORD_OVERHEAD_BYTES
        if size_bytes > BATCH_BYTES_MAX and index > start:
            yield records[start:index]
            start, size_bytes = index, len(key) + len(value or b"") + RECORD_OVERHEAD_BYTES
    yield records[start:]


class _Unfinished(NamedTuple, Generic[RegistryT]):
    """Called once `commit` is done; `commit` is None if nothing was appended."""

    finish: Callable[[RegistryT], None]
    commit: asyncio.Future[None] | None


class CoordinatorShard(ABC, Generic[RegistryT, MomentT, EffectsT]):
    """One coordinator partition and its state."""

    __slots__ = (
        "_answers",
        "_clock",
        "_loading",
        "_loop",
        "_new_registry",
        "_next_token",
        "_partition",
        "_timer",
        "_timer_due",
        "_unfinished",
        "began_at",
        "epoch",
        "registry",
    )

    def __init__(
        self,
        partition: Partition,
        new_registry: Callable[[], RegistryT],
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        epoch: LeaderEpoch,
    ) -> None:
        self._partition = partition
        self.epoch = epoch
        """The leader epoch in which this shard was created."""
        self.began_at = monotonic()
        """On the clock of connections, which is always the system's. Not for other uses."""
        self._new_registry = new_registry
        self._clock = clock
        self._loop = loop
        self.registry: RegistryT | None = None
        """None while the log is being loaded."""
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._next_token = 0
        self._unfinished: deque[_Unfinished[RegistryT]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0.0
        self._loading: asyncio.Task[None] | None = None
        self._begin_loading()

    # -- implemented by the shards -----------------------------------------------------------------

    @abstractmethod
    def _now(self) -> MomentT: ...

    @abstractmethod
    def _loaded(self, registry: RegistryT) -> None:
        """Called when the log has been replayed."""

    @abstractmethod
    def _encode(self, effects: EffectsT) -> Iterator[bytearray]:
        """Yields the batches that hold the records of `effects`."""

    @abstractmethod
    def _finish(self, registry: RegistryT, effects: EffectsT) -> None:
        """Replays the committed records. The caller completes the answers."""

    @abstractmethod
    def _replay_batch(
        self, registry: RegistryT, header: BatchHeader, records: Sequence[Record]
    ) -> None:
        """Replays a batch of the log while loading."""

    @abstractmethod
    def _tick(self) -> None:
        """Lets the registry do what is due. Called by the timer."""

    # -- requests -------------------------------------------------------------------------------

    def reading(self) -> RegistryT:
        """Returns the registry for a read. Raises CoordinatorLoading while there is none."""
        if self.registry is None:
            raise CoordinatorLoading("The coordinator is loading and hence can't process requests.")
        return self.registry

    async def ask(
        self, decide: Callable[[RegistryT, int, MomentT], EffectsT], answer: type[A]
    ) -> A:
        """Runs a request and waits for its answer. Raises KafkaError if the coordinator failed
        it."""
        registry = self.reading()
        token = self._next_token
        self._next_token += 1
        future: asyncio.Future[Any] = self._loop.create_future()
        self._answers[token] = future
        try:
            self._carry_out(decide(registry, token, self._now()))
            value = await future
        finally:
            if self._answers.pop(token, None) is not None and self.registry is registry:
                registry.cancel(token)
        if not isinstance(value, answer):
            raise TypeError(f"{answer.__name__} expected, not {type(value).__name__}")
        return value

    def carry_out(self, decide: Callable[[RegistryT, MomentT], EffectsT]) -> None:
        """Carries out effects that no request waits for: ticks, expiry, deleted topics."""
        if self.registry is not None:
            self._carry_out(decide(self.registry, self._now()))

    def close(self, reason: KafkaError) -> None:
        """Stops the timer and fails all waiting requests."""
        if self._timer is not None:
            self._timer.cancel()
        if self._loading is not None:
            self._loading.cancel()
        self._drop(reason)

    # -- effects --------------------------------------------------------------------------------

    def _carry_out(self, effects: EffectsT) -> None:
        try:
            commit = self._append(effects) if effects.records else None
        except KafkaError as error:
            self._reload(error)
            return

        def finish(registry: RegistryT) -> None:
            self._finish(registry, effects)
            for token, answer in effects.answers:
                future = self._answers.pop(token, None)
                if future is not None and not future.done():
                    future.set_result(answer)

        self._after(commit, finish)
        self._set_timer()

    def _append(self, effects: EffectsT) -> asyncio.Future[None] | None:
        """Appends batches and returns the future of the last one's commit."""
        for batch in self._encode(effects):
            appended = self._partition.append_own(batch)
        return self._partition.commit(appended, all_replicas=True)

    def _after(
        self, commit: asyncio.Future[None] | None, finish: Callable[[RegistryT], None]
    ) -> None:
        """Calls `finish` when `commit` and all earlier decisions are done."""
        self._unfinished.append(_Unfinished(finish, commit))
        if commit is not None:
            commit.add_done_callback(lambda _: self._finish_ready())
        self._finish_ready()

    def _finish_ready(self) -> None:
        """Finishes effects whose commits are done, oldest first."""
        while self._unfinished and self.registry is not None:
            oldest = self._unfinished[0]
            if oldest.commit is not None:
                if not oldest.commit.done():
                    return
                if (error := oldest.commit.exception()) is not None:
                    self._reload(error)
                    return
            self._unfinished.popleft()
            oldest.finish(self.registry)

    def _set_timer(self) -> None:
        """Schedules a tick at the next deadline. An earlier timer is kept: its tick finds nothing
        to do and sets the right timer, which is cheaper than a new timer for every heartbeat."""
        deadline = None if self.registry is None else self.registry.next_deadline()
        if deadline is None:
            return
        due = self._loop.time() + max(0.0, deadline - self._clock.monotonic())
        if self._timer is not None:
            # The due time is stored here because uvloop's handle does not return it once it is due.
            if self._timer_due <= due:
                return
            self._timer.cancel()
        self._timer, self._timer_due = self._loop.call_at(due, self._on_timer), due

    def _on_timer(self) -> None:
        self._timer = None
        self._tick()

    # -- loading --------------------------------------------------------------------------------

    def _begin_loading(self) -> None:
        if self._partition.replica.next_offset == self._partition.log_start_offset:
            self._take(self._new_registry())
        else:
            self._loading = self._loop.create_task(self._load())
            self._loading.add_done_callback(self._load_ended)

    async def _load(self) -> None:
        held_to = self._partition.replica.next_offset
        if held_to > self._partition.log_end_offset:
            # Proposed batches that are not in the log yet because the disk is full. They must be
            # read, or they would be committed later without this registry having seen them.
            await self._partition.committed_to(held_to)
        registry, end_offset = await asyncio.to_thread(self._load_blocking)
        if end_offset > self._partition.high_watermark:
            # After a reload, the log may contain our own decisions that are not committed yet. They
            # must not be visible to clients: another leader might not have them.
            await self._partition.committed_to(end_offset)
        self._take(registry)

    def _load_blocking(self) -> tuple[RegistryT, Offset]:
        """Reads the log. Returns the registry and the end offset."""
        registry = self._new_registry()
        log = self._partition.log
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            records = log.read(offset, _READ_BYTES, limit_offset=log.log_end_offset).records
            position = 0
            while position < len(records):
                header = read_header(records, position)
                self._replay_batch(registry, header, decode_batch(records, position))
                position += header.size_bytes
                offset = header.next_offset
        return registry, offset

    def _take(self, registry: RegistryT) -> None:
        self.registry = registry
        self._loaded(registry)
        self._set_timer()

    def _load_ended(self, task: asyncio.Task[None]) -> None:
        self._loading = None
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, NotLeaderOrFollower):
            # (If leadership was lost, the next leader loads.) Requests keep getting
            # CoordinatorLoading: no answer is better than a wrong one.
            logger.error(
                "cannot load the coordinator state of %s", self._partition.name, exc_info=error
            )

    def _reload(self, error: BaseException) -> None:
        """Discards decisions that could not be appended or committed, and reloads the log."""
        if not self._partition.leads:
            self.close(NotCoordinator("The coordinator has moved."))
            return
        logger.error("reloading the coordinator state of %s: %s", self._partition.name, error)
        # CoordinatorLoading makes clients retry here. With NotCoordinator, librdkafka looks for
        # another coordinator only once and then reports the error to the application; during a
        # leader's handover it would find the same coordinator twice.
        self._drop(CoordinatorLoading(str(error)))
        self._begin_loading()

    def _drop(self, error: KafkaError) -> None:
        self.registry = None
        self._unfinished.clear()
        waiting, self._answers = self._answers, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(error)


class Shard(Protocol):
    @property
    def epoch(self) -> LeaderEpoch: ...

    def close(self, reason: KafkaError) -> None: ...


ShardT = TypeVar("ShardT", bound=Shard)


class CoordinatorRuntime(Generic[ShardT]):
    """The shards of the partitions of one topic that this node leads."""

    __slots__ = ("_new_shard", "_partitions", "_shards", "topic")

    def __init__(
        self,
        topic: str,
        partitions: PartitionTable,
        new_shard: Callable[[Partition, LeaderEpoch], ShardT],
    ) -> None:
        self.topic = topic
        self._partitions = partitions
        self._new_shard = new_shard
        self._shards: dict[PartitionIndex, ShardT] = {}

    def partition_of(self, key: str) -> PartitionIndex:
        """Returns the partition of `key`, whichever node leads it."""
        count = self._partitions.partition_count(self.topic)
        if count == 0:
            raise CoordinatorNotAvailable("The coordinator is not available.")
        return PartitionIndex(java_hash(key) % count)

    def of_key(self, key: str) -> ShardT:
        """Returns the shard of `key`. Raises NotCoordinator unless this node is certain to lead
        it."""
        return self.at(self.partition_of(key))

    def at(self, index: PartitionIndex) -> ShardT:
        try:
            partition = self._partitions.get(self.topic, index)
        except KafkaError:
            raise NotCoordinator("This is not the correct coordinator.") from None
        self.leadership_changed(partition)
        return self._shards[index]

    def __iter__(self) -> Iterator[ShardT]:
        yield from tuple(self._shards.values())

    def leadership_changed(self, partition: Partition) -> None:
        """Creates or closes the shard of a partition after its leadership changed.

        A new term of this node needs a new shard: another node may have written in between.
        """
        index = partition.name.partition
        shard = self._shards.get(index)
        epoch = partition.leader_epoch if partition.leads else None
        if shard is not None and shard.epoch != epoch:
            self._shards.pop(index).close(NotCoordinator("The coordinator has moved."))
            shard = None
        if shard is None and epoch is not None:
            self._shards[index] = self._new_shard(partition, epoch)

    def close(self) -> None:
        for shard in self:
            shard.close(CoordinatorNotAvailable("The broker is shutting down."))
