"""LogReader over librdkafka. Its calls block, so each reader has one thread, which runs them in turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as KafkaTopicPartition

from kafkaesque.client.kafka_errors import error_of, translate
from kafkaesque.client.ports import Assignment, Headers, LogError, Received, Subscription
from kafkaesque.model.ids import (
    NO_TIMESTAMP,
    Offset,
    PartitionIndex,
    TimestampMs,
    TopicPartition,
)

T = TypeVar("T")

_PASSING = frozenset({KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT})
"""librdkafka goes on by itself after these: no record is missed, none is due."""


class KafkaReader:
    """Made by `start`; see LogReader."""

    def __init__(self, config: Mapping[str, Any], what: Subscription | Assignment) -> None:
        self._what = what
        try:
            self._consumer = Consumer(_consumer_config(config, what))
        except KafkaException as exception:
            raise translate(error_of(exception), "make a consumer") from None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="log-reader")
        self._next: dict[TopicPartition, Offset] = {}
        self._closed = False

    @classmethod
    async def start(cls, config: Mapping[str, Any], what: Subscription | Assignment) -> Self:
        reader = cls(config, what)
        await reader._run(reader._begin)
        return reader

    def _begin(self) -> None:
        if isinstance(self._what, Subscription):
            self._consumer.subscribe(list(self._what.topics), on_revoke=self._forget)
            return
        self._next = dict(self._what.offsets)
        self._consumer.assign(
            [
                KafkaTopicPartition(place.topic, place.partition, offset)
                for place, offset in self._what.offsets.items()
            ]
        )

    def _forget(self, _consumer: Consumer, revoked: Sequence[KafkaTopicPartition]) -> None:
        """What goes to another member is no longer ours to commit. Runs inside `consume`."""
        for place in revoked:
            self._next.pop(TopicPartition(place.topic, PartitionIndex(place.partition)), None)

    async def read(self, count_max: int = 500, wait_s: float = 1.0) -> Sequence[Received]:
        messages: list[Message] = await self._run(lambda: self._consumer.consume(count_max, wait_s))
        records = []
        for message in messages:
            error = message.error()
            if error is None:
                records.append(_received(message))
                self._move(message, 1)
            elif error.code() == KafkaError._PARTITION_EOF:
                # The only word of offsets that hold no record for us: compacted away, or the marker
                # of a transaction.
                self._move(message, 0)
            elif error.code() not in _PASSING:
                raise translate(error, f"read {message.topic()}")
        return records

    def _move(self, message: Message, beyond: int) -> None:
        place = TopicPartition(message.topic() or "", PartitionIndex(message.partition() or 0))
        self._next[place] = Offset((message.offset() or 0) + beyond)

    async def positions(self) -> Mapping[TopicPartition, Offset]:
        return dict(self._next)

    async def commit(self) -> None:
        if not isinstance(self._what, Subscription):
            raise LogError("only the reader of a subscription belongs to a group")
        if self._next:
            offsets = self._offsets()
            await self._run(lambda: self._consumer.commit(offsets=offsets, asynchronous=False))

    async def group_positions(self) -> tuple[list[KafkaTopicPartition], Any]:
        """For a transaction: the positions and the group's metadata, as librdkafka takes them."""
        metadata = await self._run(self._consumer.consumer_group_metadata)
        return self._offsets(), metadata

    def _offsets(self) -> list[KafkaTopicPartition]:
        return [
            KafkaTopicPartition(place.topic, place.partition, offset)
            for place, offset in self._next.items()
        ]

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            await self._run(self._consumer.close)
            self._thread.shutdown()

    async def _run(self, function: Callable[[], T]) -> T:
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._thread, function)
        except KafkaException as exception:
            raise translate(error_of(exception), "read") from None


def _consumer_config(config: Mapping[str, Any], what: Subscription | Assignment) -> dict[str, Any]:
    ours: dict[str, Any] = {
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "auto.offset.reset": "earliest",
        # librdkafka demands a group even for those who never join one.
        "group.id": "kafkaesque-assigned",
    }
    if isinstance(what, Subscription):
        ours |= {"group.id": what.group, "auto.offset.reset": what.start.value}
    else:
        ours["enable.partition.eof"] = True
    return {**ours, **config}


def _received(message: Message) -> Received:
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
