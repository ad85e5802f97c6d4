"""Offsets of open transactions: they take effect when the transaction commits (KIP-447).

The order of writing decides, not the order in which transactions end: an offset that was committed
after one was written here, by anyone, is newer and stays (Kafka's
OffsetMetadataManager.replayEndTransactionMarker).
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple, TypeVar

from kafkaesque.broker.groups.log_format import OffsetKey, OffsetValue
from kafkaesque.model.ids import ProducerId

_KeyT = TypeVar("_KeyT")


class _PendingOffset(NamedTuple):
    ordinal: int
    """Its position among all offsets ever written here."""
    value: OffsetValue
    is_outdated: bool = False
    """A newer offset was committed since. Requests for stable offsets still wait for the end."""


class PendingOffsets:
    """By producer, in the order of the log; a producer has one transaction at a time."""

    __slots__ = ("_by_producer", "_counts", "_group_counts", "_ordinal")

    def __init__(self) -> None:
        self._by_producer: dict[ProducerId, dict[OffsetKey, _PendingOffset]] = {}
        self._ordinal = 0
        self._counts: Counter[OffsetKey] = Counter()
        """The number of producers that have each key."""
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
        self._ordinal += 1
        offsets[key] = _PendingOffset(self._ordinal, value)

    def committed(self, key: OffsetKey) -> None:
        """An offset was committed outside a transaction: all pending ones are older."""
        if key in self._counts:
            self._outdate(key, self._ordinal)

    def end(self, producer_id: ProducerId, *, is_commit: bool) -> dict[OffsetKey, OffsetValue]:
        """Ends a transaction and returns the offsets that take effect."""
        offsets = self._by_producer.pop(producer_id, {})
        effective = {}
        for key, pending in offsets.items():
            self._forget(key)
            if is_commit and not pending.is_outdated:
                effective[key] = pending.value
                if key in self._counts:
                    self._outdate(key, pending.ordinal)
        return effective

    def _outdate(self, key: OffsetKey, up_to: int) -> None:
        for offsets in self._by_producer.values():
            pending = offsets.get(key)
            if pending is not None and pending.ordinal <= up_to:
                offsets[key] = pending._replace(is_outdated=True)

    def remove(self, key: OffsetKey) -> None:
        """The topic or the group was deleted: `key` can no longer be committed."""
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
