"""The payloads that members of a consumer group exchange: subscriptions and assignments.

ConsumerProtocolSubscription and ConsumerProtocolAssignment, written in version 0, which every Kafka
client reads, and Kafka's range assignor, so that text clients and Kafka clients share groups. The
broker passes the payloads of Kafka clients on unchanged and reads only their subscribed topics.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from kafkaesque.model.errors import ProtocolError

PROTOCOL_TYPE = "consumer"
ASSIGNOR = "range"
_VERSION = 0
_NO_USER_DATA = struct.pack(">i", -1)

Assignment: TypeAlias = dict[str, list[int]]
"""Partitions by topic."""


def encode_subscription(topics: Iterable[str]) -> bytes:
    names = sorted(topics)
    return b"".join((struct.pack(">hi", _VERSION, len(names)), *map(_string, names), _NO_USER_DATA))


def encode_assignment(assignment: Mapping[str, Iterable[int]]) -> bytes:
    parts = [struct.pack(">hi", _VERSION, len(assignment))]
    for topic, partitions in sorted(assignment.items()):
        numbers = list(partitions)
        parts.append(_string(topic))
        parts.append(struct.pack(f">i{len(numbers)}i", len(numbers), *numbers))
    return b"".join((*parts, _NO_USER_DATA))


def decode_assignment(data: bytes) -> Assignment:
    """Empty for a member without partitions. Raises ProtocolError if the bytes are malformed."""
    if not data:
        return {}
    assignment: Assignment = {}
    try:
        _, count = struct.unpack_from(">hi", data)
        position = 6
        for _ in range(count):
            (length,) = struct.unpack_from(">h", data, position)
            topic = data[position + 2 : position + 2 + length].decode()
            position += 2 + length
            (number,) = struct.unpack_from(">i", data, position)
            if not 0 <= number <= (len(data) - position) // 4:
                raise ProtocolError("an assignment is longer than its data")
            assignment[topic] = list(struct.unpack_from(f">{number}i", data, position + 4))
            position += 4 + 4 * number
    except (struct.error, UnicodeDecodeError) as error:
        raise ProtocolError(f"an assignment cannot be read: {error}") from None
    return assignment


def assign_ranges(
    members: Mapping[str, frozenset[str]], partition_counts: Mapping[str, int]
) -> dict[str, Assignment]:
    """Every subscribed member gets a contiguous range of each topic (Kafka's RangeAssignor)."""
    assigned: dict[str, Assignment] = {member: {} for member in members}
    for topic, count in partition_counts.items():
        subscribed = sorted(member for member, topics in members.items() if topic in topics)
        if not subscribed:
            continue
        size, extra = divmod(count, len(subscribed))
        start = 0
        for position, member in enumerate(subscribed):
            end = start + size + (position < extra)
            if end > start:
                assigned[member][topic] = list(range(start, end))
            start = end
    return assigned


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">h", len(data)) + data


_PREFIX = struct.Struct(">hi")
_LENGTH = struct.Struct(">h")


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """The subscribed topics; None if the bytes are not a consumer subscription.

    Version 0 is a prefix of all later ones (Kafka's ClassicGroup.computeSubscribedTopics).
    """
    if len(metadata) < _PREFIX.size:
        return None
    version, count = _PREFIX.unpack_from(metadata)
    position = _PREFIX.size
    if version < 0 or count < 0 or count * _LENGTH.size > len(metadata) - position:
        return None
    topics = []
    for _ in range(count):
        if position + _LENGTH.size > len(metadata):
            return None
        (length,) = _LENGTH.unpack_from(metadata, position)
        position += _LENGTH.size
        if length < 0 or position + length > len(metadata):
            return None
        try:
            topics.append(metadata[position : position + length].decode())
        except UnicodeDecodeError:
            return None
        position += length
    return frozenset(topics)
