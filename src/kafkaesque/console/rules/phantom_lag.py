"""Phantom lag: offsets after a committed offset that hold no record for the consumer.

A read_committed consumer never receives transaction markers or records of aborted transactions, and
most clients do not commit past them. The group then shows a lag that no reading can remove, so the
console looks at short unread ranges and subtracts those that hold nothing to read.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from kafkaesque.console.rules.view import PartitionKey
from kafkaesque.model.errors import CorruptMessage
from kafkaesque.records.batch import BatchHeader, Buffer, read_header
from kafkaesque.records.layout import HEADER_SIZE_BYTES
from kafkaesque.wire.messages.fetch import AbortedTransaction

RANGE_OFFSETS_MAX: Final = 500
"""Longer ranges are not checked: a group that far from the end really lags."""
RANGES_CHECKED_MAX: Final = 64
"""Ranges checked in one sample."""


class UnreadRange(NamedTuple):
    """A committed offset that is before the end of its partition."""

    partition: PartitionKey
    committed: int
    end: int


def next_readable_offset(data: Buffer, aborted: Iterable[AbortedTransaction], start: int) -> int:
    """The first offset from `start` on that may hold a record for a read_committed consumer.

    `data` is the records field of a Fetch response that begins at or before `start`.
    """
    pending = sorted(aborted, key=lambda one: one.first_offset, reverse=True)
    aborted_producers: set[int] = set()
    offset = start
    for header in _headers(data):
        while pending and pending[-1].first_offset <= header.last_offset:
            aborted_producers.add(pending.pop().producer_id)
        is_unreadable = (
            header.is_control
            or not header.record_count  # compaction removed every record of the batch
            or (header.is_transactional and header.producer_id in aborted_producers)
        )
        if header.is_control:
            aborted_producers.discard(header.producer_id)
        if header.last_offset < start:
            continue
        if not is_unreadable:
            break
        offset = header.next_offset
    return offset


def _headers(data: Buffer) -> Iterable[BatchHeader]:
    """Headers of the batches in `data`. The last batch of a Fetch may be cut, even in its header."""
    position = 0
    while len(data) - position >= HEADER_SIZE_BYTES:
        try:
            header = read_header(data, position)
        except CorruptMessage:
            return
        yield header
        position += header.size_bytes


class PhantomLag:
    """Chooses unread ranges to check and remembers the results, so that each is fetched once."""

    __slots__ = ("_next_readable", "_previous_active")

    def __init__(self) -> None:
        self._next_readable: dict[UnreadRange, int] = {}
        self._previous_active: frozenset[UnreadRange] = frozenset()

    def choose(
        self, active: Iterable[UnreadRange], inactive: Iterable[UnreadRange]
    ) -> list[UnreadRange]:
        """Ranges to check now; results of ranges that no longer exist are dropped.

        A range of an `active` group (one with members) is checked only if it has not changed since
        the previous call: a group that makes progress needs no correction.
        """
        of_active = frozenset(unread for unread in active if _is_short(unread))
        of_inactive = frozenset(unread for unread in inactive if _is_short(unread))
        current = of_active | of_inactive
        self._next_readable = {
            unread: offset for unread, offset in self._next_readable.items() if unread in current
        }
        unchanged = of_active & self._previous_active
        self._previous_active = of_active
        return sorted((of_inactive | unchanged) - self._next_readable.keys())[:RANGES_CHECKED_MAX]

    def record(self, unread: UnreadRange, next_readable: int) -> None:
        """Remember what `next_readable_offset` returned for this range."""
        self._next_readable[unread] = next_readable

    def count(self, unread: UnreadRange) -> int:
        """Offsets to subtract from the lag: the whole range if nothing in it is readable, else 0."""
        next_readable = self._next_readable.get(unread, unread.committed)
        return unread.end - unread.committed if next_readable >= unread.end else 0


def _is_short(unread: UnreadRange) -> bool:
    return 0 < unread.end - unread.committed <= RANGE_OFFSETS_MAX
