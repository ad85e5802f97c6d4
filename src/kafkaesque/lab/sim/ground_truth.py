"""The true state of the whole cluster, which no node has: every entry ever written, and what is committed.

Facts only; `checkers` has the invariants.
"""

from __future__ import annotations

from typing import NamedTuple

from kafkaesque.broker.raft.types import FRESH, NO_INDEX, EntryKind, HardState, LogIndex, Term
from kafkaesque.lab.sim.disk import Inode, SimulatedDisk
from kafkaesque.lab.sim.durable_state import is_journaled
from kafkaesque.model.ids import GroupId, MemberId, NodeId, Offset
from kafkaesque.records.batch import BatchHeader


class InvariantViolation(Exception):
    """An invariant is broken. The first argument is the invariant's name."""

    def __init__(self, name: str, detail: str) -> None:
        super().__init__(name, detail)
        self.name = name
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.name}: {self.detail}"


def require(condition: bool, name: str, detail: object = "") -> None:
    if not condition:
        raise InvariantViolation(name, str(detail))


class EntryFact(NamedTuple):
    """One entry: equal index and term must mean equal facts on every node."""

    kind: EntryKind
    identity: tuple[object, ...]
    """For a batch: checksum, producer, epoch, sequence. For a control entry: its payload."""
    previous_term: Term
    base_offset: Offset
    end_offset: Offset

    @property
    def is_batch(self) -> bool:
        return self.end_offset > self.base_offset


def batch_fact(header: BatchHeader, previous_term: Term) -> EntryFact:
    identity = (header.crc, header.producer_id, header.producer_epoch, header.base_sequence)
    return EntryFact(
        EntryKind.DATA, identity, previous_term, header.base_offset, header.next_offset
    )


class CommittedEntry(NamedTuple):
    term: Term
    fact: EntryFact | None
    """None for an entry that was never seen being written; only ever index 0."""
    in_term: Term
    """The term of the node that learned of the commit first. Leaders of later terms must have the entry;
    a leader of an earlier term may still be elected by a delayed vote."""


class GroupTruth:
    """The ground truth of one group."""

    __slots__ = (
        "acked_offset",
        "batches",
        "committed",
        "entries",
        "group",
        "leaders",
        "membership_changes",
    )

    def __init__(self, group: GroupId) -> None:
        self.group = group
        self.entries: dict[tuple[LogIndex, Term], EntryFact] = {}
        self.batches: dict[tuple[LogIndex, Term], bytes] = {}
        """The bytes of entries that are batches."""
        self.committed: list[CommittedEntry] = [CommittedEntry(Term(0), None, Term(0))]
        """By index, for good."""
        self.leaders: dict[Term, MemberId] = {}
        self.membership_changes: set[tuple[LogIndex, Term]] = set()
        """Membership changes in any log."""
        self.acked_offset = Offset(0)
        """Everything before this offset was acknowledged to clients."""

    @property
    def committed_index(self) -> LogIndex:
        return LogIndex(len(self.committed) - 1)

    def committed_end_offset(self) -> Offset:
        fact = self.committed[-1].fact
        return Offset(0) if fact is None else fact.end_offset


class EntryPlace(NamedTuple):
    """The file position at which an entry was written."""

    inode: Inode
    path: str
    start: int
    end: int
    batch: bytes = b""
    """The bytes written; empty for a control entry."""


class ReplicaTruth:
    """The ground truth of one group on one node, for the life of its disk."""

    __slots__ = (
        "commit_index",
        "disk",
        "durable_floor",
        "first_index",
        "last_index",
        "member",
        "node",
        "places",
        "promised",
        "term",
        "terms",
        "vote",
    )

    def __init__(self, node: NodeId, member: MemberId, disk: SimulatedDisk) -> None:
        self.node = node
        self.member = member
        self.disk = disk
        self.first_index = LogIndex(1)
        self.last_index = NO_INDEX
        self.terms: dict[LogIndex, Term] = {}
        """The terms of all entries in the log, durable or not."""
        self.places: dict[LogIndex, EntryPlace] = {}
        """The places of entries written since the last start."""
        self.durable_floor = NO_INDEX
        """Everything up to here was synced when the replica was opened."""
        self.promised = NO_INDEX
        """Everything up to here was acknowledged to a leader and not truncated since."""
        self.term = Term(0)
        self.vote: HardState = FRESH
        """The last vote given, to another node or to itself."""
        self.commit_index = NO_INDEX

    def holds(self, index: LogIndex, term: Term) -> bool:
        """Whether the entry would be found on this disk after any crash, right now."""
        return self.terms.get(index) == term and self.is_durable(index)

    def is_durable(self, index: LogIndex) -> bool:
        if index <= self.durable_floor:
            return True
        place = self.places.get(index)
        if place is None:
            return False
        return self._is_in_file(place) or self._is_in_journal(place)

    def _is_in_journal(self, place: EntryPlace) -> bool:
        return is_journaled(self.disk, place.path.rpartition("/")[0], place.batch)

    def _is_in_file(self, place: EntryPlace) -> bool:
        if not self.disk.is_name_durable(place.path):
            return False
        # A file that was replaced since then was replaced by an equivalent one (a checkpoint).
        is_replaced = self.disk.inode_at(place.path) is not place.inode
        return is_replaced or place.inode.is_durable(place.start, place.end)

    def cut_from(self, index: LogIndex) -> None:
        for number in range(index, self.last_index + 1):
            self.terms.pop(LogIndex(number), None)
            self.places.pop(LogIndex(number), None)
        last = LogIndex(index - 1)
        self.last_index = min(self.last_index, last)
        self.durable_floor = min(self.durable_floor, last)
        self.promised = min(self.promised, last)

    def note(self, index: LogIndex, term: Term, place: EntryPlace) -> None:
        self.terms[index] = term
        self.places[index] = place
        self.last_index = index

    def reopened(self, first: LogIndex, last: LogIndex, terms: dict[LogIndex, Term]) -> None:
        """Everything that was found is durable: it was synced when it was opened."""
        self.first_index, self.last_index = first, last
        self.terms = terms
        self.places = {}
        self.durable_floor = last
