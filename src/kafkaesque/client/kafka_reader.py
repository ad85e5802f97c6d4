"""LogReader over librdkafka. Its calls block, so each reader has one thread, which runs them in turn.

librdkafka reports rebalances by callbacks from inside `poll`, in that thread. The listener is
asynchronous and runs on the event loop while the thread waits for it. Calls that the listener makes to
the reader are run by the waiting thread (`_CallbackQueue`): no other thread may use the consumer.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import queue
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar

from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as KafkaTopicPartition

from kafkaesque.client.kafka_errors import error_of, translate
from kafkaesque.client.ports import (
    Assignment,
    CommitPoint,
    Headers,
    LogError,
    Rebalance,
    Received,
    Subscription,
)
from kafkaesque.model.errors import check
from kafkaesque.model.ids import (
    NO_TIMESTAMP,
    Offset,
    PartitionIndex,
    TimestampMs,
    TopicPartition,
)

T = TypeVar("T")

COMMITTED_SECONDS_MAX = 15.0
FETCH_BACKOFF_MS = 10
_TRANSIENT = frozenset({KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT})
"""librdkafka recovers from these by itself; no record is lost."""


class _CallbackQueue:
    """Runs calls in the reader's thread while that thread waits for a listener."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self.open = False

    def run(self, callback: Callable[[], Awaitable[None]]) -> None:
        """In the reader's thread: runs `callback` on the loop and waits for its end."""

        async def notify() -> None:
            await callback()

        self.open = True
        notifying = asyncio.run_coroutine_threadsafe(notify(), self._loop)
        notifying.add_done_callback(lambda _: self._calls.put(None))
        while (call := self._calls.get()) is not None:
            call()
        self.open = False
        notifying.result()

    def post(self, function: Callable[[], T]) -> concurrent.futures.Future[T]:
        """On the loop: has the waiting thread run `function`."""
        outcome: concurrent.futures.Future[T] = concurrent.futures.Future()

        def call() -> None:
            try:
                outcome.set_result(function())
            except (KafkaException, RuntimeError) as exception:
                outcome.set_exception(exception)

        self._calls.put(call)
        return outcome


@dataclass(slots=True)
class _StartPositions:
    """Seeks and pauses during `assigned`: librdkafka takes neither before the assignment is made."""

    at: dict[TopicPartition, Offset] = field(default_factory=dict)
    paused: set[TopicPartition] = field(default_factory=set)

    def of(self, places: Iterable[TopicPartition]) -> list[KafkaTopicPartition]:
        committed = Offset(OFFSET_INVALID)
        return library_offsets({place: self.at.get(place, committed) for place in sorted(places)})


class KafkaReader:
    """Made by `start`; see LogReader."""

    def __init__(self, config: Mapping[str, Any], what: Subscription | Assignment) -> None:
        self._what = what
        self._config = _consumer_config(config, what)
        try:
            self._consumer = Consumer(self._config)
        except KafkaException as exception:
            raise translate(error_of(exception), "make a consumer") from None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="log-reader")
        self._callbacks = _CallbackQueue(asyncio.get_running_loop())
        self._places: frozenset[TopicPartition] = frozenset()
        self._next: dict[TopicPartition, Offset] = {}
        self._start_positions: _StartPositions | None = None
        """Set while a listener handles `assigned`."""
        self._reading: asyncio.Task[list[Message]] | None = None
        self._closed = False

    @classmethod
    async def start(cls, config: Mapping[str, Any], what: Subscription | Assignment) -> Self:
        reader = cls(config, what)
        await reader._run(reader._subscribe_or_assign)
        return reader

    def _subscribe_or_assign(self) -> None:
        if isinstance(self._what, Subscription):
            self._consumer.subscribe(
                list(self._what.topics),
                on_assign=self._on_assign,
                on_revoke=self._on_revoke,
                on_lost=self._on_lost,
            )
            return
        self._next = dict(self._what.offsets)
        self._places = frozenset(self._next)
        self._consumer.assign(library_offsets(self._what.offsets))

    # -- callbacks of librdkafka, in the reader's thread ------------------------------------------

    @property
    def _listener(self) -> Rebalance | None:
        return self._what.listener if isinstance(self._what, Subscription) else None

    @property
    def _cooperative(self) -> bool:
        strategy = str(self._config.get("partition.assignment.strategy", ""))
        return "cooperative" in strategy or self._config.get("group.protocol") == "consumer"

    def _on_assign(self, consumer: Consumer, found: list[KafkaTopicPartition]) -> None:
        places = places_of(found)
        self._places |= places
        self._start_positions = positions = _StartPositions()
        listener = self._listener
        try:
            if listener is not None and places:
                self._callbacks.run(lambda: listener.assigned(places))
        finally:
            self._start_positions = None
            if self._cooperative:
                consumer.incremental_assign(positions.of(places))
            else:
                consumer.assign(positions.of(places))
            if positions.paused:
                consumer.pause(library_places(positions.paused))

    def _on_revoke(self, _consumer: Consumer, found: list[KafkaTopicPartition]) -> None:
        places = places_of(found)
        listener = self._listener
        try:
            if listener is not None and places:
                self._callbacks.run(lambda: listener.revoked(places))
        finally:
            self._forget(places)

    def _on_lost(self, _consumer: Consumer, found: list[KafkaTopicPartition]) -> None:
        places = places_of(found)
        self._forget(places)
        listener = self._listener
        if listener is not None and places:
            self._callbacks.run(lambda: listener.lost(places))

    def _forget(self, places: frozenset[TopicPartition]) -> None:
        """Drops positions of partitions that go to another member: they are not ours to commit."""
        self._places -= places
        for place in places:
            self._next.pop(place, None)

    # -- reading -----------------------------------------------------------------------------------

    async def read(self, count_max: int = 500, wait_s: float = 1.0) -> Sequence[Received]:
        if self._reading is None:
            self._reading = asyncio.create_task(self._run(lambda: self._consume(count_max, wait_s)))
        reading = self._reading
        try:
            # Shielded: records that a cancelled read took from the queue are for the next read.
            messages = await asyncio.shield(reading)
        finally:
            if reading.done():
                self._reading = None
        records = []
        for message in messages:
            error = message.error()
            if error is None:
                place = place_of(message)
                if place not in self._places:
                    continue
                records.append(received(message))
                self._move(place, message, 1)
            elif error.code() == KafkaError._PARTITION_EOF:
                # The only way to learn of offsets without a record: compacted away, or the marker of
                # a transaction.
                self._move(place_of(message), message, 0)
            elif error.code() not in _TRANSIENT:
                raise translate(error, f"read {message.topic()}")
        return records

    def _consume(self, count_max: int, wait_s: float) -> list[Message]:
        """`consume` alone would wait for all `count_max` records even if some are there."""
        first = self._consumer.poll(wait_s)
        if first is None:
            return []
        return [first, *self._consumer.consume(count_max - 1, 0)] if count_max > 1 else [first]

    def _move(self, place: TopicPartition, message: Message, beyond: int) -> None:
        if place in self._places:
            self._next[place] = Offset((message.offset() or 0) + beyond)

    async def positions(self) -> Mapping[TopicPartition, Offset]:
        return dict(self._next)

    def assignment(self) -> frozenset[TopicPartition]:
        return self._places

    # -- the group ---------------------------------------------------------------------------------

    async def commit(self, points: Mapping[TopicPartition, CommitPoint] | None = None) -> None:
        self._check_group()
        offsets = self._offsets(points)
        if offsets:
            await self._run(lambda: self._consumer.commit(offsets=offsets, asynchronous=False))

    async def committed(
        self, places: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, CommitPoint]:
        self._check_group()
        wanted = library_places(places)
        if not wanted:
            return {}
        return commit_points(
            await self._run(lambda: self._consumer.committed(wanted, COMMITTED_SECONDS_MAX))
        )

    def _check_group(self) -> None:
        if not isinstance(self._what, Subscription):
            raise LogError("only a reader with a subscription belongs to a consumer group")

    async def group_positions(
        self, points: Mapping[TopicPartition, CommitPoint] | None
    ) -> tuple[list[KafkaTopicPartition], Any]:
        """For a transaction: positions and the group's metadata in librdkafka's types."""
        metadata = await self._run(self._consumer.consumer_group_metadata)
        return self._offsets(points), metadata

    def _offsets(
        self, points: Mapping[TopicPartition, CommitPoint] | None
    ) -> list[KafkaTopicPartition]:
        return library_offsets(self._next) if points is None else library_points(points)

    # -- changing what is read ---------------------------------------------------------------------

    async def seek(self, place: TopicPartition, offset: Offset) -> None:
        check(place in self._places, f"seek of {place}, which is not assigned to this reader")
        self._next[place] = offset
        if self._start_positions is not None:
            self._start_positions.at[place] = offset
            return
        target = KafkaTopicPartition(place.topic, place.partition, offset)
        await self._run(lambda: self._consumer.seek(target))

    async def pause(self, places: Iterable[TopicPartition]) -> None:
        if self._start_positions is not None:
            self._start_positions.paused.update(places)
            return
        paused = library_places(places)
        await self._run(lambda: self._consumer.pause(paused))

    async def resume(self, places: Iterable[TopicPartition]) -> None:
        resumed = library_places(places)
        await self._run(lambda: self._consumer.resume(resumed))

    async def add(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        self._check_assignment()
        check(self._places.isdisjoint(offsets), "added partitions must not be assigned yet")
        self._next |= offsets
        self._places |= offsets.keys()
        added = library_offsets(offsets)
        await self._run(lambda: self._consumer.incremental_assign(added))

    async def drop(self, places: Iterable[TopicPartition]) -> None:
        self._check_assignment()
        dropped = frozenset(places) & self._places
        self._forget(dropped)
        leaving = library_places(dropped)
        if leaving:
            await self._run(lambda: self._consumer.incremental_unassign(leaving))

    def _check_assignment(self) -> None:
        if not isinstance(self._what, Assignment):
            raise LogError("the consumer group decides what a reader with a subscription reads")

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            await self._run(self._consumer.close)
            self._thread.shutdown()

    async def _run(self, function: Callable[[], T]) -> T:
        try:
            if self._callbacks.open:
                return await asyncio.wrap_future(self._callbacks.post(function))
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._thread, function)
        except KafkaException as exception:
            raise translate(error_of(exception), "read") from None


def _consumer_config(config: Mapping[str, Any], what: Subscription | Assignment) -> dict[str, Any]:
    ours: dict[str, Any] = {
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "auto.offset.reset": "earliest",
        # How long a fetch is postponed when librdkafka's queue is full. The default of a second
        # starves a reader that empties the queue sooner, although the broker has more.
        "fetch.queue.backoff.ms": FETCH_BACKOFF_MS,
        # librdkafka requires a group id even of consumers that never join a group.
        "group.id": "kafkaesque-assigned",
    }
    if isinstance(what, Subscription):
        ours |= {"group.id": what.group, "auto.offset.reset": what.start.value}
    else:
        ours["enable.partition.eof"] = True
        if what.strict:
            ours["auto.offset.reset"] = "error"
    return {**ours, **config}


# -- values of the port to those of librdkafka, and back ---------------------------------------------


def received(message: Message) -> Received:
    kind, timestamp_ms = message.timestamp()
    return Received(
        topic=message.topic() or "",
        partition=PartitionIndex(message.partition() or 0),
        offset=Offset(message.offset() or 0),
        key=_octets(message.key()),
        value=_octets(message.value()),
        headers=_headers(message),
        timestamp_ms=TimestampMs(timestamp_ms) if kind else NO_TIMESTAMP,
    )


def _headers(message: Message) -> Headers:
    pairs: Any = message.headers() or ()
    return tuple((name, _octets(value)) for name, value in pairs)


def _octets(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def place_of(message: Message) -> TopicPartition:
    return TopicPartition(message.topic() or "", PartitionIndex(message.partition() or 0))


def places_of(found: Iterable[KafkaTopicPartition]) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(item.topic, PartitionIndex(item.partition)) for item in found)


def library_places(places: Iterable[TopicPartition]) -> list[KafkaTopicPartition]:
    return [KafkaTopicPartition(place.topic, place.partition) for place in places]


def library_offsets(offsets: Mapping[TopicPartition, Offset]) -> list[KafkaTopicPartition]:
    return [
        KafkaTopicPartition(place.topic, place.partition, offset)
        for place, offset in offsets.items()
    ]


def library_points(points: Mapping[TopicPartition, CommitPoint]) -> list[KafkaTopicPartition]:
    return [
        KafkaTopicPartition(place.topic, place.partition, point.offset, point.metadata)
        for place, point in points.items()
    ]


def commit_points(found: Iterable[KafkaTopicPartition]) -> Mapping[TopicPartition, CommitPoint]:
    """Without partitions that have no commit: librdkafka gives those a negative offset."""
    return {
        TopicPartition(item.topic, PartitionIndex(item.partition)): CommitPoint(
            Offset(item.offset), item.metadata or ""
        )
        for item in found
        if item.offset >= 0
    }
