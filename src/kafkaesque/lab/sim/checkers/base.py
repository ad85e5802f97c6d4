"""The hooks of checkers. Each checker overrides those it needs."""

from __future__ import annotations

from kafkaesque.broker.raft.messages import Message
from kafkaesque.broker.raft.types import LogIndex, Snapshot, Term
from kafkaesque.lab.sim.ground_truth import CommittedEntry, EntryFact, GroupTruth
from kafkaesque.lab.sim.view import ReplicaView
from kafkaesque.model.ids import Offset


class Checker:
    """An invariant. Its name is the class name, split into words."""

    def opened(self, view: ReplicaView) -> None:
        """A replica was opened, recovered and synced; it has sent nothing yet."""

    def writes(self, view: ReplicaView, index: LogIndex, term: Term, fact: EntryFact) -> None:
        """An entry is about to be written."""

    def wrote(self, view: ReplicaView, index: LogIndex, term: Term, fact: EntryFact) -> None:
        """An entry was written to the page cache."""

    def cuts(self, view: ReplicaView, index: LogIndex) -> None:
        """The log is about to be truncated from `index` on."""

    def installed(self, view: ReplicaView, snapshot: Snapshot) -> None:
        """The log was replaced by one that starts after a snapshot."""

    def sends(self, view: ReplicaView, message: Message) -> None:
        """A message is sent."""

    def steps(self, view: ReplicaView) -> None:
        """Something happened to a replica. Called most often: must be cheap."""

    def leads(self, view: ReplicaView, term: Term) -> None:
        """A replica was first seen as the leader of a term."""

    def commits(self, view: ReplicaView, first: LogIndex, last: LogIndex) -> None:
        """A replica learned that first..last are committed."""

    def newly_committed(
        self, view: ReplicaView, index: LogIndex, committed: CommittedEntry
    ) -> None:
        """An entry became committed: the first node learned of it."""

    def acknowledged(self, group: GroupTruth, fact: EntryFact) -> None:
        """A batch was acknowledged to a client, at the offsets of `fact`."""


def name_of(checker: type[Checker]) -> str:
    """ElectionSafety -> election safety."""
    return "".join(f" {c.lower()}" if c.isupper() else c for c in checker.__name__).strip()


def end_offset_before(group: GroupTruth, index: LogIndex) -> Offset:
    """The base offset of the entry at `index`, if the entry is committed."""
    fact = group.committed[index - 1].fact
    return Offset(0) if fact is None else fact.end_offset
