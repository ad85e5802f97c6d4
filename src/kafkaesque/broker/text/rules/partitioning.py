"""The partition of a message: by its key as in Kafka's clients, else round robin."""

from __future__ import annotations

_MULTIPLIER = 0x5BD1E995
_SEED = 0x9747B28C
_MASK = 0xFFFFFFFF


def partition_of_key(key: bytes, partition_count: int) -> int:
    """As the Java client's default partitioner, so that equal keys share a partition."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


def murmur2(data: bytes) -> int:
    """Austin Appleby's MurmurHash2, 32 bits, as in org.apache.kafka.common.utils.Utils."""
    value = (_SEED ^ len(data)) & _MASK
    whole = len(data) & ~3
    for position in range(0, whole, 4):
        piece = int.from_bytes(data[position : position + 4], "little")
        piece = piece * _MULTIPLIER & _MASK
        piece = (piece ^ piece >> 24) * _MULTIPLIER & _MASK
        value = (value * _MULTIPLIER & _MASK) ^ piece
    if rest := data[whole:]:
        value = (value ^ int.from_bytes(rest, "little")) * _MULTIPLIER & _MASK
    value = (value ^ value >> 13) * _MULTIPLIER & _MASK
    return value ^ value >> 15


class RoundRobin:
    """Round robin over the partitions of each topic."""

    __slots__ = ("_next",)

    def __init__(self) -> None:
        self._next: dict[str, int] = {}

    def next(self, topic: str, partition_count: int) -> int:
        turn = self._next.get(topic, 0) % partition_count
        self._next[topic] = turn + 1
        return turn
