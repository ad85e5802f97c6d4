"""Invariants of transactions: visible as a whole or not at all, final once aborted, fenced for good.

The checkers use committed entries only. The coordinator's records contain the decision for each
transaction; markers and batches in the partitions contain its effect. In the new flow (KIP-890) a
transaction's marker has an epoch one higher than that of its batches.
"""

from __future__ import annotations

from typing import NamedTuple

from kafkaesque.broker.partitions.partition import Partition
from kafkaesque.broker.partitions.rules.markers import decode_marker
from kafkaesque.broker.raft.types import LogIndex, Term
from kafkaesque.broker.transactions.log_format import decode, decode_key
from kafkaesque.broker.transactions.types import TransactionState
from kafkaesque.lab.sim.checkers.base import Checker
from kafkaesque.lab.sim.ground_truth import CommittedEntry, EntryFact, require
from kafkaesque.lab.sim.view import ReplicaView
from kafkaesque.model.ids import (
    CONTROLLER_GROUP,
    GroupId,
    Offset,
    ProducerEpoch,
    ProducerId,
    ProducerIdentity,
)
from kafkaesque.records.batch import BatchHeader, iter_batches, read_header
from kafkaesque.records.codec import decode_batch

_COMMITS = (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)
_ABORTS = (TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT)
_READ_BYTES = 2_000


class AcknowledgedBatch(NamedTuple):
    """A batch of one record, acknowledged at this offset."""

    group: GroupId
    offset: Offset


class TransactionEnd(NamedTuple):
    """The outcome of a transaction that a client received, and the batches it had written in it."""

    producer: ProducerIdentity
    is_commit: bool
    sent: tuple[AcknowledgedBatch, ...]


class Seen(NamedTuple):
    """Offsets visible to an application, and the offset at which the next read starts."""

    offsets: set[Offset]
    next_offset: Offset


class Decisions:
    """The decision for each transaction, keyed by the producer with the epoch of the marker."""

    def __init__(self, coordinator: GroupId) -> None:
        self.coordinator = coordinator
        self.is_commit: dict[ProducerIdentity, bool] = {}
        self.commits_requested: set[ProducerIdentity] = set()
        """Producers, with the epoch of their batches, whose commit a client has requested."""

    def check_commit_requested(self, marker: ProducerIdentity) -> None:
        writer = marker._replace(epoch=ProducerEpoch(marker.epoch - 1))
        text = f"the transaction of {writer} was committed, but no client requested it"
        require(writer in self.commits_requested, "atomic visibility", text)

    def of_batch(self, producer_id: ProducerId, epoch: ProducerEpoch) -> bool | None:
        return self.is_commit.get(ProducerIdentity(producer_id, ProducerEpoch(epoch + 1)))


class FencingIsFinal(Checker):
    """A producer's epoch never falls, neither in a partition nor at the coordinator, which decides
    each transaction once.

    A partition derives its producers' state from its log. If the log starts after everything that a
    producer wrote, the leader has no state for it, as in Kafka, and appends even a marker that was
    delayed by seconds. That is harmless: no transaction starts in a partition unless the coordinator
    confirms that it is open.
    """

    def __init__(self, decisions: Decisions) -> None:
        self._decisions = decisions
        self._last: dict[tuple[GroupId, ProducerId], tuple[int, Offset]] = {}
        """Epoch and offset of the last batch or marker."""
        self._starts: dict[tuple[GroupId, LogIndex, Term], Offset] = {}
        """The log start offset on the node that wrote an entry first, which was its leader."""

    def writes(self, view: ReplicaView, index: LogIndex, term: Term, fact: EntryFact) -> None:
        start = view.entries.log.log_start_offset
        self._starts.setdefault((view.group.group, index, term), start)

    def newly_committed(
        self, view: ReplicaView, index: LogIndex, committed: CommittedEntry
    ) -> None:
        group = view.group.group
        batch = _batch_of(view, index, committed)
        if batch is None:
            return
        if group != self._decisions.coordinator:
            header = read_header(batch)
            if header.is_transactional:
                start = self._starts[group, index, committed.term]
                if self._last.get((group, header.producer_id), (-1, start))[1] < start:
                    del self._last[group, header.producer_id]
                self._rises(view, header.producer_id, header.producer_epoch, header.base_offset)
            return
        for record in decode_batch(batch):
            if record.value is not None and decode_key(record.key or b"") is not None:
                value = decode(record.value)
                self._rises(view, value.producer_id, value.epoch, Offset(0))
                producer = ProducerIdentity(value.producer_id, value.epoch)
                if value.state in _COMMITS + _ABORTS:
                    is_commit = value.state in _COMMITS
                    if is_commit:
                        self._decisions.check_commit_requested(producer)
                    known = self._decisions.is_commit.setdefault(producer, is_commit)
                    text = f"{producer} was to commit: {known}, is now to commit: {is_commit}"
                    require(known == is_commit, "fencing is final", text)

    def _rises(
        self, view: ReplicaView, producer_id: ProducerId, epoch: int, offset: Offset
    ) -> None:
        key = (view.group.group, producer_id)
        known, _ = self._last.get(key, (-1, offset))
        text = f"{view}: producer {producer_id} is at epoch {known}, {epoch} is written"
        require(epoch >= known, "fencing is final", text)
        self._last[key] = epoch, offset


class _Fold:
    """The committed transactional state of one partition."""

    __slots__ = ("ended", "open", "stable_reported")

    def __init__(self) -> None:
        self.open: dict[ProducerId, list[Offset]] = {}
        """Offsets written by each producer in its open transaction."""
        self.ended: dict[ProducerId, int] = {}
        """The epoch of the last marker of each producer."""
        self.stable_reported = Offset(0)


class TransactionsAreAtomic(Checker):
    """A marker follows the decision and matches it. No batch joins a transaction after its marker.
    A read_committed reader sees every committed batch and no other transactional batch."""

    def __init__(self, decisions: Decisions) -> None:
        self._decisions = decisions
        self._folds: dict[GroupId, _Fold] = {}
        self.ends: list[TransactionEnd] = []

    def commit_requested(self, producer: ProducerIdentity) -> None:
        """A client is about to request the commit of its transaction."""
        self._decisions.commits_requested.add(producer)

    def newly_committed(
        self, view: ReplicaView, index: LogIndex, committed: CommittedEntry
    ) -> None:
        group = view.group.group
        if group == self._decisions.coordinator:
            return
        batch = _batch_of(view, index, committed)
        if batch is None:
            return
        header = read_header(batch)
        if not header.is_transactional:
            return
        fold = self._folds.setdefault(group, _Fold())
        producer_id, epoch = header.producer_id, header.producer_epoch
        if not header.is_control:
            text = f"{view}: epoch {epoch} of producer {producer_id} writes at {header.base_offset}"
            is_alive = epoch >= fold.ended.get(producer_id, -1)
            require(is_alive, "no resurrection after abort", text)
            fold.open.setdefault(producer_id, []).append(header.base_offset)
            return
        marker = decode_marker(batch)
        if marker is not None:
            decided = self._decisions.is_commit.get(ProducerIdentity(producer_id, epoch))
            text = f"{view}: {marker} for {producer_id} in epoch {epoch}, decided was {decided}"
            require(decided is marker.is_commit, "atomic visibility", text)
            fold.open.pop(producer_id, None)
            fold.ended[producer_id] = epoch

    def read(
        self, view: ReplicaView, partition: Partition, start: Offset, *, is_ordered: bool
    ) -> None:
        """Checks a read_committed fetch at a leader."""
        fold = self._folds.setdefault(view.group.group, _Fold())
        stable = partition.stable_offset
        for producer_id, offsets in fold.open.items():
            # Records that retention deleted are visible to no reader.
            first = next((at for at in offsets if at >= partition.log_start_offset), stable)
            text = f"{view} is stable up to {stable}, {producer_id} is open from {first} on"
            require(stable <= first, "the stable offset never passes an open transaction", text)
        if is_ordered:
            text = f"{view} is stable up to {stable}, {fold.stable_reported} was reported before"
            require(stable >= fold.stable_reported, "the stable offset never goes back", text)
            fold.stable_reported = stable
        if start < stable:
            self._check_seen(view, partition, start)

    def _check_seen(self, view: ReplicaView, partition: Partition, start: Offset) -> Seen:
        """Checks one read: the visible batches must match the decisions."""
        read = partition.read(start, _READ_BYTES, at_least_one=True, stable_only=True)
        headers = [header for _, header in iter_batches(read.records)]
        offsets: set[Offset] = set()
        for header, is_seen in _as_a_client(partition, start, headers, read.next_offset):
            decided = self._decisions.of_batch(header.producer_id, header.producer_epoch)
            text = f"{view} at {header.base_offset}: seen {is_seen}, to commit: {decided}"
            require(decided is is_seen, "atomic visibility", text)
            if is_seen:
                offsets.add(header.base_offset)
        return Seen(offsets, read.next_offset)

    def _visible(self, view: ReplicaView, partition: Partition) -> set[Offset]:
        found: set[Offset] = set()
        offset, stable = partition.log_start_offset, partition.stable_offset
        while offset < stable:
            offsets, offset = self._check_seen(view, partition, offset)
            found |= offsets
        return found

    def check_ends(self, views: dict[GroupId, tuple[ReplicaView, Partition]]) -> None:
        """Checks, at the end, that the outcomes clients received are true and that no transaction hangs."""
        visible: dict[GroupId, set[Offset]] = {}
        for group, (view, partition) in views.items():
            stable = partition.stable_offset
            text = f"{view} is stable up to {stable} of {partition.high_watermark}"
            require(stable == partition.high_watermark, "no transaction hangs", text)
            visible[group] = self._visible(view, partition)
        for end in self.ends:
            for group, offset in end.sent:
                _, partition = views[group]
                if offset < partition.log_start_offset:
                    continue
                text = f"{end.producer} to commit: {end.is_commit}, at {offset} of group {group}"
                is_right = (offset in visible[group]) is end.is_commit
                require(is_right, "atomic visibility", text)


def _as_a_client(
    partition: Partition, start: Offset, headers: list[BatchHeader], end: Offset
) -> list[tuple[BatchHeader, bool]]:
    """Each transactional batch, and whether it is visible to an application."""
    aborted = partition.producers.transactions.aborted.between(start, end)
    begins = sorted((one.first_offset, one.producer_id) for one in aborted)
    skipping: set[ProducerId] = set()
    found = []
    for header in headers:
        while begins and begins[0][0] <= header.base_offset:
            skipping.add(begins.pop(0)[1])
        if header.is_control:
            skipping.discard(header.producer_id)
        elif header.is_transactional:
            found.append((header, header.producer_id not in skipping))
    return found


def _batch_of(view: ReplicaView, index: LogIndex, committed: CommittedEntry) -> bytes | None:
    """The bytes of a committed batch of a partition; None for other entries.

    They are not read from the log of the node that commits: it may not have written them yet, or
    may have deleted them already.
    """
    if view.group.group == CONTROLLER_GROUP:
        return None
    return view.group.batches.get((index, committed.term))
