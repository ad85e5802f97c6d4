"""Invariants that clients see: acknowledgements, no duplicates, committed and fresh reads."""

from __future__ import annotations

from kafkaesque.broker.raft.types import LogIndex
from kafkaesque.lab.sim.checkers.base import Checker
from kafkaesque.lab.sim.ground_truth import CommittedEntry, EntryFact, GroupTruth, require
from kafkaesque.lab.sim.view import ReplicaView
from kafkaesque.model.ids import GroupId, Offset
from kafkaesque.records.batch import BatchHeader

_BatchKey = tuple[GroupId, object, object, object]


def _key(group: GroupTruth, fact: EntryFact) -> _BatchKey:
    _, producer, epoch, sequence = fact.identity
    return group.group, producer, epoch, sequence


class ExactlyOnceInOrder(Checker):
    """An idempotent producer's batches are committed once each, without a gap, in their order."""

    def __init__(self) -> None:
        self._next_sequence: dict[tuple[GroupId, object, object], int] = {}

    def newly_committed(
        self, view: ReplicaView, index: LogIndex, committed: CommittedEntry
    ) -> None:
        fact = committed.fact
        if fact is None or not fact.is_batch:
            return
        group, producer, epoch, sequence = _key(view.group, fact)
        if not isinstance(sequence, int) or sequence < 0:
            return
        key = (group, producer, epoch)
        expected = self._next_sequence.get(key, 0)
        text = f"{view}: producer {producer} has sequence {sequence} at {index}, not {expected}"
        require(sequence == expected, "exactly once, in order", text)
        self._next_sequence[key] = sequence + (fact.end_offset - fact.base_offset)


class AcknowledgedIsCommitted(Checker):
    """A batch is acknowledged only once it is committed, and with its actual offset."""

    def __init__(self) -> None:
        self._committed: dict[_BatchKey, Offset] = {}

    def newly_committed(
        self, view: ReplicaView, index: LogIndex, committed: CommittedEntry
    ) -> None:
        if committed.fact is not None and committed.fact.is_batch:
            self._committed[_key(view.group, committed.fact)] = committed.fact.base_offset

    def acknowledged(self, group: GroupTruth, fact: EntryFact) -> None:
        found = self._committed.get(_key(group, fact))
        text = f"group {group.group}: {fact.identity} acked at {fact.base_offset}, is at {found}"
        require(found == fact.base_offset, "acknowledged is committed", text)


class ReadersSeeCommitted(Checker):
    """A reader gets committed batches only, each at its own offset."""

    def __init__(self) -> None:
        self._at: dict[tuple[GroupId, Offset], tuple[object, int]] = {}

    def newly_committed(
        self, view: ReplicaView, index: LogIndex, committed: CommittedEntry
    ) -> None:
        fact = committed.fact
        if fact is not None and fact.is_batch:
            place = (view.group.group, fact.base_offset)
            self._at[place] = (fact.identity[0], committed.term)

    def read(self, view: ReplicaView, header: BatchHeader) -> None:
        found = self._at.get((view.group.group, header.base_offset))
        text = f"{view} served {header.base_offset}@{header.leader_epoch}, committed is {found}"
        is_right = found == (header.crc, header.leader_epoch)
        require(is_right, "readers see what is committed", text)


class ReadsAreNotStale(Checker):
    """A read that starts after an acknowledgement sees the acknowledged records."""

    def read_to(self, view: ReplicaView, floor: Offset, high_watermark: Offset) -> None:
        text = f"{view} served up to {high_watermark}, {floor} was acknowledged before"
        require(high_watermark >= floor, "reads are not stale", text)
