"""One live replica as the checkers see it, and the entry log that reports every write to them."""

from __future__ import annotations

from typing import Protocol

from kafkaesque.broker.raft.core import Raft
from kafkaesque.broker.raft.state import State
from kafkaesque.broker.raft.types import Entry, LogIndex, Snapshot, Term
from kafkaesque.broker.replication.entry_log import BatchPayload, BatchRef, EntryLog
from kafkaesque.lab.sim.ground_truth import GroupTruth, ReplicaTruth
from kafkaesque.model.errors import StorageFailed
from kafkaesque.model.ids import MemberId, NodeId, Offset


class ReplicaView:
    """One replica, from its opening to its end."""

    __slots__ = ("entries", "group", "member", "node", "raft", "seen", "truth")

    def __init__(
        self,
        node: NodeId,
        member: MemberId,
        group: GroupTruth,
        truth: ReplicaTruth,
        entries: EntryLog,
        raft: Raft,
    ) -> None:
        self.node = node
        self.member = member
        self.group = group
        self.truth = truth
        self.entries = entries
        self.raft = raft
        self.seen: object = None
        """Term, leader and commit index as the checkers last saw them."""

    @property
    def state(self) -> State:
        """The internal state of the rules, which only the simulation may access."""
        return self.raft._state

    def __str__(self) -> str:
        return f"node {self.node} group {self.group.group}"


class Witness(Protocol):
    """Is notified of events of a log, before or after they happen."""

    def writes_batch(self, index: LogIndex, term: Term, payload: BatchPayload) -> None: ...

    def did_not_write(self) -> None: ...

    def wrote_batch(self, index: LogIndex, term: Term, payload: BatchPayload) -> None: ...

    def wrote_control(self, entry: Entry) -> None: ...

    def cuts(self, index: LogIndex) -> None: ...

    def installed(self, snapshot: Snapshot) -> None: ...


class WatchedEntryLog(EntryLog):
    """The real entry log, with a witness."""

    __slots__ = ("witness",)

    witness: Witness | None

    def append_batch(
        self, index: LogIndex, term: Term, payload: BatchPayload, now_ms: int
    ) -> BatchRef:
        if self.witness is not None:
            self.witness.writes_batch(index, term, payload)
        try:
            written = super().append_batch(index, term, payload, now_ms)
        except StorageFailed:
            if self.witness is not None:
                self.witness.did_not_write()
            raise
        if self.witness is not None:
            self.witness.wrote_batch(index, term, payload)
        return written

    def append_control(self, entry: Entry) -> None:
        super().append_control(entry)
        if self.witness is not None:
            self.witness.wrote_control(entry)

    def truncate_from(self, index: LogIndex) -> Offset:
        if self.witness is not None:
            self.witness.cuts(index)
        return super().truncate_from(index)

    def install(self, snapshot: Snapshot) -> None:
        super().install(snapshot)
        if self.witness is not None:
            self.witness.installed(snapshot)
