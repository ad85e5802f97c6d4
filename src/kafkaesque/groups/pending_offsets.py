"""Offsets that a transaction will commit: they count when it does, and never if it aborts (KIP-447)."""

from __future__ import annotations

from collections import Counter
from typing import TypeVar

from kafkaesque.groups.log_format import OffsetKey, OffsetValue
from kafkaesque.model.ids import ProducerId

_KeyT = TypeVar("_KeyT")


class PendingOffsets:
    """By producer, in the order of the log; a producer has one transaction at a time."""

    __slots__ = ("_by_producer", "_counts", "_group_counts")

    def __init__(self) -> None:
        self._by_producer: dict[ProducerId, dict[OffsetKey, OffsetValue]] = {}
        self._counts: Counter[OffsetKey] = Counter()
        """How many producers have each key."""
        self._group_counts: Counter[str] = Counter()

    def __contains__(self, key: OffsetKey) -> bool:
        return key in self._counts

    def has_group(self, group_id: str) -> bool:
        return group_id in self._group_counts

    def keys(self) -> list[OffsetKey]:
        return list(self._counts)

    def add(self, producer_id: ProducerId, key: OffsetKey, value: OffsetValue) -> None:
        offsets = self._by_producer.setdefault(producer_id, {})
        if key not in offsets:
            self._counts[key] += 1
            self._group_counts[key.group_id] += 1
        offsets[key] = value

    def end(self, producer_id: ProducerId) -> dict[OffsetKey, OffsetValue]:
        """The transaction is over; what it would have committed."""
        offsets = self._by_producer.pop(producer_id, {})
        for key in offsets:
            self._forget(key)
        return offsets

    def remove(self, key: OffsetKey) -> None:
        """The topic or the group is gone: nobody commits `key` any more."""
        if key not in self._counts:
            return
        for producer_id, offsets in tuple(self._by_producer.items()):
            if offsets.pop(key, None) is not None:
                self._forget(key)
                if not offsets:
                    del self._by_producer[producer_id]

    def _forget(self, key: OffsetKey) -> None:
        _decrement(self._counts, key)
        _decrement(self._group_counts, key.group_id)


def _decrement(counter: Counter[_KeyT], key: _KeyT) -> None:
    counter[key] -= 1
    if not counter[key]:
        del counter[key]
