"""The transactions of one partition: which are open, which were aborted, and the last stable
offset.

Pure, and like the producers a fold of the log: batches open a transaction, markers end it. The last
stable offset never passes the first record of a transaction that is open or whose marker is not
committed yet; so it never decreases. Based on Kafka's ProducerStateManager and TransactionIndex,
and for the guards on VerificationStateEntry (KIP-890).
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
    """A marker came from a coordinator that has been replaced."""

    code = ErrorCode.TRANSACTION_COORDINATOR_FENCED


class RefusedByCoordinator(KafkaError):
    """The transaction coordinator rejected a batch, with this code."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(f"The transaction coordinator answered {code.name}")
        self.code = code  # type: ignore[misc]


GUARDS_MAX = 10_000
"""Concurrent verifications in one partition. Beyond that the oldest is dropped, so that invented
producer ids cannot exhaust memory."""


class AbortedTxn(NamedTuple):
    producer_id: ProducerId
    first_offset: Offset


class VerificationGuard:
    """Permission to begin a transaction here, held while the coordinator verifies it.

    A marker revokes it: a batch that was verified before the transaction ended must not be appended
    after it.
    """

    __slots__ = ("epoch", "lowest_sequence")

    def __init__(self, epoch: ProducerEpoch, sequence: int) -> None:
        self.epoch = epoch
        self.lowest_sequence = sequence
        """The lowest sequence of all batches since. The first batch to be appended must not skip
        any of them."""


class AbortedIndex:
    """Aborted transactions in the order of their markers, 32 bytes each.

    `_stable` is the last stable offset right after the marker: transactions aborted later begin at
    or after it.
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

    def between(self, offset: Offset, end_offset: Offset) -> list[AbortedTxn]:
        """Returns the transactions that overlap [offset, end_offset)."""
        found = []
        for number in range(bisect_left(self._last, offset), len(self._last)):
            if self._first[number] < end_offset:
                found.append(
                    AbortedTxn(ProducerId(self._producers[number]), Offset(self._first[number]))
                )
            if self._stable[number] >= end_offset:
                break
        return found

    def drop_before(self, offset: Offset) -> None:
        """Drops transactions whose records are all before `offset`."""
        count = bisect_left(self._last, offset)
        if count:
            for column in (self._producers, self._first, self._last, self._stable):
                del column[:count]

    def forget(self, markers: Iterable[Offset]) -> None:
        """Drops the transactions with these markers: the log cleaner has removed all of their
        records and is about to remove the markers."""
        gone = set(markers)
        rows = [row for row in self.rows() if row[2] not in gone]
        columns = zip(*rows, strict=True) if rows else ((), (), (), ())
        self._producers, self._first, self._last, self._stable = (array("q", c) for c in columns)

    def rows(self) -> list[tuple[int, int, int, int]]:
        return list(zip(self._producers, self._first, self._last, self._stable, strict=True))


class OpenTransactionsSnapshot(msgspec.Struct, array_like=True):
    """(producer id, first offset), (marker's offset, first offset), rows of the aborted index."""

    open: list[tuple[int, int]] = []
    ended: list[tuple[int, int]] = []
    aborted: list[tuple[int, int, int, int]] = []


class OpenTransactions:
    """See the module's docstring."""

    __slots__ = ("_ended", "_guards", "_open", "aborted")

    def __init__(self) -> None:
        self._open: dict[ProducerId, Offset] = {}
        """First offset of each, oldest first: dicts keep the order of the log."""
        self._ended: deque[tuple[Offset, Offset]] = deque()
        """(offset of the marker, first offset) of transactions whose marker may not be committed
        yet."""
        self._guards: dict[ProducerId, VerificationGuard] = {}
        self.aborted = AbortedIndex()

    def __len__(self) -> int:
        """The number of transactions that hold back read_committed consumers."""
        return len(self._open) + len(self._ended)

    def first_offset(self, producer_id: ProducerId) -> Offset | None:
        """Returns the first offset of the producer's open transaction; None if it has none."""
        return self._open.get(producer_id)

    def stable_offset(self, high_watermark: Offset) -> Offset:
        """Returns the last stable offset: every transaction before it is committed or aborted,
        durably."""
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
        """Records that a transactional batch was appended."""
        if producer_id not in self._open:
            self._open[producer_id] = base_offset
            self._guards.pop(producer_id, None)

    def ended(self, producer_id: ProducerId, marker_offset: Offset, *, is_commit: bool) -> None:
        """Records that a marker was appended. Without an open transaction, it only revokes the
        guard."""
        self._guards.pop(producer_id, None)
        first_offset = self._open.pop(producer_id, None)
        if first_offset is None:
            return
        self._ended.append((marker_offset, first_offset))
        if not is_commit:
            after_marker = Offset(marker_offset + 1)
            stable = min(after_marker, next(iter(self._open.values()), after_marker))
            self.aborted.add(producer_id, first_offset, marker_offset, stable)

    # -- verification -------------------------------------------------------------------------

    def guard(
        self, producer_id: ProducerId, epoch: ProducerEpoch, sequence: int
    ) -> VerificationGuard:
        """Returns the guard of the producer's epoch, to be held while the coordinator verifies it.
        All batches of the epoch share it. An older epoch gets a guard that is not registered: a
        late batch must not revoke its successor's guard."""
        known = self._guards.get(producer_id)
        if known is not None and known.epoch > epoch:
            return VerificationGuard(epoch, sequence)
        if known is not None and known.epoch == epoch:
            known.lowest_sequence = min(known.lowest_sequence, sequence)
            return known
        if known is None and len(self._guards) >= GUARDS_MAX:
            del self._guards[next(iter(self._guards))]
        new = self._guards[producer_id] = VerificationGuard(epoch, sequence)
        return new

    def holds(self, producer_id: ProducerId, guard: VerificationGuard) -> bool:
        """Returns whether the guard was not revoked."""
        return self._guards.get(producer_id) is guard

    def release(self, producer_id: ProducerId, guard: VerificationGuard) -> None:
        """Revokes the guard after the coordinator rejected the transaction. Others that share it
        must verify again."""
        if self._guards.get(producer_id) is guard:
            del self._guards[producer_id]

    def drop_guards(self) -> None:
        """Revokes all guards: another node leads and has to verify again."""
        self._guards.clear()

    # -- snapshots ----------------------------------------------------------------------------

    def before(self, offset: Offset) -> OpenTransactions:
        """Returns the open transactions that began before `offset`. A transaction that has ended
        since is not needed: its later records and its marker describe it."""
        found = OpenTransactions()
        found._open = {one: first for one, first in self._open.items() if first < offset}
        return found

    def snapshot(self) -> OpenTransactionsSnapshot:
        return OpenTransactionsSnapshot(
            [(int(producer_id), int(first)) for producer_id, first in self._open.items()],
            [(int(marker), int(first)) for marker, first in self._ended],
            self.aborted.rows(),
        )

    @classmethod
    def restore(cls, saved: OpenTransactionsSnapshot) -> OpenTransactions:
        restored = cls()
        for producer_id, first in saved.open:
            restored._open[ProducerId(producer_id)] = Offset(first)
        restored._ended.extend((Offset(marker), Offset(first)) for marker, first in saved.ended)
        for producer_id, first, last, stable in saved.aborted:
            restored.aborted.add(
                ProducerId(producer_id), Offset(first), Offset(last), Offset(stable)
            )
        return restored
