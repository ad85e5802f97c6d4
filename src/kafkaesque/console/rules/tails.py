"""What lies between a committed offset and the end of its partition, if no record does.

A reader of committed records never gets the markers that end transactions, nor the records of aborted
ones, and with most clients its position stays before them: a lag that no reading takes away.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from kafkaesque.console.rules.view import Place
from kafkaesque.model.errors import CorruptMessage
from kafkaesque.records.batch import HEADER_SIZE_BYTES, BatchHeader, Buffer, read_header

TAIL_OFFSETS_MAX: Final = 500
"""A longer tail is not looked at: that much behind, a group is behind."""
ASKED_AT_ONCE_MAX: Final = 64


class Aborted(NamedTuple):
    """A transaction that a Fetch answer tells to be aborted."""

    producer_id: int
    first_offset: int


def silent_until(data: Buffer, aborted: Iterable[Aborted], start: int) -> int:
    """The offset up to which a reader of committed records gets nothing of `data` from `start` on."""
    beginning = sorted(aborted, key=lambda one: one.first_offset, reverse=True)
    taken_back: set[int] = set()
    reached = start
    for header in _headers(data):
        while beginning and beginning[-1].first_offset <= header.last_offset:
            taken_back.add(beginning.pop().producer_id)
        is_silent = (
            header.is_control
            or not header.record_count  # what compaction leaves of a batch
            or (header.is_transactional and header.producer_id in taken_back)
        )
        if header.is_control:
            taken_back.discard(header.producer_id)
        if header.last_offset < start:
            continue
        if not is_silent:
            break
        reached = header.next_offset
    return reached


def _headers(data: Buffer) -> Iterable[BatchHeader]:
    """Of the batches that are there; the last of a Fetch answer may be cut, even in its header."""
    position = 0
    while len(data) - position >= HEADER_SIZE_BYTES:
        try:
            header = read_header(data, position)
        except CorruptMessage:
            return
        yield header
        position += header.size_bytes


class Tail(NamedTuple):
    """A committed offset that is not at the end of its partition."""

    place: Place
    committed: int
    end: int


class Tails:
    """Remembers what was found behind committed offsets, so that each tail is looked at once."""

    __slots__ = ("_found", "_seen")

    def __init__(self) -> None:
        self._found: dict[Tail, int] = {}
        self._seen: frozenset[Tail] = frozenset()

    def choose(self, moving: Iterable[Tail], still: Iterable[Tail]) -> list[Tail]:
        """Those to look at now. Of `moving` (groups that have members) only those that have not moved
        since the last call: who reads on needs no excuse for a lag."""
        new = frozenset(tail for tail in moving if _is_short(tail))
        idle = frozenset(tail for tail in still if _is_short(tail))
        known = new | idle
        self._found = {tail: at for tail, at in self._found.items() if tail in known}
        wanted = (idle | (new & self._seen)) - self._found.keys()
        self._seen = new
        return sorted(wanted)[:ASKED_AT_ONCE_MAX]

    def learn(self, tail: Tail, silent_until: int) -> None:
        self._found[tail] = silent_until

    def silent(self, tail: Tail) -> int:
        """Offsets behind the committed one that hold nothing to read: all up to the end, or none."""
        reached = self._found.get(tail, tail.committed)
        return tail.end - tail.committed if reached >= tail.end else 0


def _is_short(tail: Tail) -> bool:
    return 0 < tail.end - tail.committed <= TAIL_OFFSETS_MAX
