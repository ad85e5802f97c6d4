"""Values of the port to those of librdkafka and back. No calls to a broker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import Message
from confluent_kafka import TopicPartition as KafkaTopicPartition

from kafkaesque.client.ports import CommitPoint, Headers, Received
from kafkaesque.model.ids import (
    NO_TIMESTAMP,
    Offset,
    PartitionIndex,
    TimestampMs,
    TopicPartition,
)


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
    """Without those that have none: librdkafka marks them with a negative offset."""
    return {
        TopicPartition(item.topic, PartitionIndex(item.partition)): CommitPoint(
            Offset(item.offset), item.metadata or ""
        )
        for item in found
        if item.offset >= 0
    }
