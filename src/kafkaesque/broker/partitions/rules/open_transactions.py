"""Transactions as one partition sees them: which are open, which were aborted, how far it is stable.

Pure, and like the producers a fold of the log: batches open a transaction, markers end it. The last
stable offset never passes the first record of a transaction that is open, or whose marker is not
committed yet; so it never goes back. Rules: Kafka's ProducerStateManager, TransactionIndex and
(for the guards) VerificationStateEntry of KIP-890.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from kafkaesque.model.errors import ErrorCode, KafkaError
from kafkaesque.model.ids import Offset, ProducerEpoch, ProducerId


class TransactionCoordinatorFenced(KafkaError):
    """A marker from a coordinator that has been replaced."""

    code = ErrorCode.TRANSACTION_COORDINATOR_FENCED


class RefusedByCoordinator(KafkaError):
    """The transaction coordinator refused a batch, with the code it gave."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(f"The transaction coordinator answered {code.name}")
        self.code = code  # type: ignore[misc]


GUARDS_MAX = 10_000
"""Verifications under way in one partition; a peer that invents producers pushes out the oldest."""


class AbortedTransaction(NamedTuple):
    producer_id: ProducerId
    first_offset: Offset


class Guard:
    """Permission to begin a transaction here, while the coordinator is asked whether it is one.

    A marker takes it away: what was verified before the transaction ended is not appended after.
    """

    __slots__ = ("epoch", "lowest_sequence")

    def __init__(self, epoch: ProducerEpoch, sequence: int) -> None:
        self.epoch = epoch
        self.lowest_sequence = sequence
        """Of all batches that came since: none may be the first that jumps over another."""


class AbortedIndex:
    """Aborted transactions in the order of their markers, 32 bytes each.

    `_stable` is the last stable offset right behind the marker: whatever was aborted later begins
    there or behind it.
    """

    __slots__ = ("_first", "_last", "_producers", "_stable")

    def __init__(self) -> None:
        self._producers, self._first = array("q"), array("q")
        self._last, self._stable = array("q"), array("q")

    def __len__(self) -> int:
        return len(self._last)

    def add(self, producer_id: ProducerId, first: Offset, last: Offset, stable: Offset) -> None:
        self._producers.append(producer_id)
        self._first.append(first)
        self._last.append(last)
        self._stable.append(stable)

    def between(self, offset: Offset, end_offset: Offset) -> list[AbortedTransaction]:
        """Those with records in [offset, end_offset), or around it."""
        found = []
        for number in range(bisect_left(self._last, offset), len(self._last)):
            if self._first[number] < end_offset:
                found.append(
                    AbortedTransaction(
                        ProducerId(self._producers[number]), Offset(self._first[number])
                    )
                )
            if self._stable[number] >= end_offset:
                break
        return found

    def drop_before(self, offset: Offset) -> None:
        """Records before `offset` are gone, and with them what they were."""
        count = bisect_left(self._last, offset)
        if count:
            for column in (self._producers, self._first, self._last, self._stable):
                del column[:count]

    def forget(self, markers: Iterable[Offset]) -> None:
        """A cleaner removes these markers; of what they ended it has left nothing."""
        gone = set(markers)
        rows = [row for row in self.rows() if row[2] not in gone]
        columns = zip(*rows, strict=True) if rows else ((), (), (), ())
        self._producers, self._first, self._last, self._stable = (array("q", c) for c in columns)

    def rows(self) -> list[tuple[int, int, int, int]]:
        return list(zip(self._producers, self._first, self._last, self._stable, strict=True))


class Snapshot(msgspec.Struct, array_like=True):
    """(producer id, first offset), (marker's offset, first offset), rows of the aborted index."""

    open: list[tuple[int, int]] = []
    ended: list[tuple[int, int]] = []
    aborted: list[tuple[int, int, int, int]] = []


class OpenTransactions:
    """See the module's text."""

    __slots__ = ("_ended", "_guards", "_open", "aborted")

    def __init__(self) -> None:
        self._open: dict[ProducerId, Offset] = {}
        """First offset of each, oldest first: dicts keep the order of the log."""
        self._ended: deque[tuple[Offset, Offset]] = deque()
        """(offset of the marker, first offset) of those whose marker may not be committed yet."""
        self._guards: dict[ProducerId, Guard] = {}
        self.aborted = AbortedIndex()

    def __len__(self) -> int:
        """How many hold back readers of committed transactions."""
        return len(self._open) + len(self._ended)

    def first_offset(self, producer_id: ProducerId) -> Offset | None:
        """Where the producer's open transaction begins; None if it has none."""
        return self._open.get(producer_id)

    def stable_offset(self, high_watermark: Offset) -> Offset:
        """Everything before it is decided: committed or aborted, and known to be."""
        while self._ended and self._ended[0][0] < high_watermark:
            self._ended.popleft()
        stable = high_watermark
        if self._open:
            stable = min(stable, next(iter(self._open.values())))
        for _, first_offset in self._ended:
            stable = min(stable, first_offset)
        return stable

    # -- the fold -----------------------------------------------------------------------------

    def wrote(self, producer_id: ProducerId, base_offset: Offset) -> None:
        """A transactional batch was appended."""
        if producer_id not in self._open:
            self._open[producer_id] = base_offset
            self._guards.pop(producer_id, None)

    def ended(self, producer_id: ProducerId, marker_offset: Offset, *, is_commit: bool) -> None:
        """A marker was appended; one without an open transaction only takes the guard away."""
        self._guards.pop(producer_id, None)
        first_offset = self._open.pop(producer_id, None)
        if first_offset is None:
            return
        self._ended.append((marker_offset, first_offset))
        if not is_commit:
            behind = Offset(marker_offset + 1)
            stable = min(behind, next(iter(self._open.values()), behind))
            self.aborted.add(producer_id, first_offset, marker_offset, stable)

    # -- verification -------------------------------------------------------------------------

    def guard(self, producer_id: ProducerId, epoch: ProducerEpoch, sequence: int) -> Guard:
        """To be held while the coordinator is asked; one for all batches of the producer's epoch. One
        of an older epoch is nobody's: what comes late must not take away what its successor holds."""
        known = self._guards.get(producer_id)
        if known is not None and known.epoch > epoch:
            return Guard(epoch, sequence)
        if known is not None and known.epoch == epoch:
            known.lowest_sequence = min(known.lowest_sequence, sequence)
            return known
        if known is None and len(self._guards) >= GUARDS_MAX:
            del self._guards[next(iter(self._guards))]
        new = self._guards[producer_id] = Guard(epoch, sequence)
        return new

    def holds(self, producer_id: ProducerId, guard: Guard) -> bool:
        """Whether the guard was not taken away."""
        return self._guards.get(producer_id) is guard

    def release(self, producer_id: ProducerId, guard: Guard) -> None:
        """The coordinator said no: whoever shares the guard asks for himself."""
        if self._guards.get(producer_id) is guard:
            del self._guards[producer_id]

    def drop_guards(self) -> None:
        """Another node leads: whatever was verified here is to be verified there."""
        self._guards.clear()

    # -- snapshots ----------------------------------------------------------------------------

    def before(self, offset: Offset) -> OpenTransactions:
        """Those that are open and began before `offset`. One that has ended since tells by what it
        wrote behind it, and by its marker."""
        found = OpenTransactions()
        found._open = {one: first for one, first in self._open.items() if first < offset}
        return found

    def snapshot(self) -> Snapshot:
        return Snapshot(
            [(int(producer_id), int(first)) for producer_id, first in self._open.items()],
            [(int(marker), int(first)) for marker, first in self._ended],
            self.aborted.rows(),
        )

    @classmethod
    def restore(cls, saved: Snapshot) -> OpenTransactions:
        restored = cls()
        for producer_id, first in saved.open:
            restored._open[ProducerId(producer_id)] = Offset(first)
        restored._ended.extend((Offset(marker), Offset(first)) for marker, first in saved.ended)
        for producer_id, first, last, stable in saved.aborted:
            restored.aborted.add(
                ProducerId(producer_id), Offset(first), Offset(last), Offset(stable)
            )
        return restored
