"""Turns events of the simulation into facts and calls the checkers, in a fixed order."""

from __future__ import annotations

from kafkaesque.broker.raft.messages import Message
from kafkaesque.broker.raft.types import NO_INDEX, NO_TERM, Entry, LogIndex, Role, Snapshot, Term
from kafkaesque.broker.replication.entry_log import BatchPayload
from kafkaesque.broker.replication.raft_journal import RaftJournal
from kafkaesque.broker.storage.log import Log
from kafkaesque.lab.sim.checkers.base import Checker
from kafkaesque.lab.sim.checkers.clients import (
    AcknowledgedIsCommitted,
    ExactlyOnceInOrder,
    ReadersSeeCommitted,
    ReadsAreNotStale,
)
from kafkaesque.lab.sim.checkers.commits import (
    AcknowledgedIsOnDisk,
    CommitIsKnownAfterRestart,
    CommitNeverFalls,
    LeaderCommitsItsOwnTerm,
    MajorityHoldsWhatIsCommitted,
    OffsetsAreDense,
    StateMachineSafety,
    TablesAgree,
)
from kafkaesque.lab.sim.checkers.elections import (
    ElectionSafety,
    LeaderCompleteness,
    TermNeverFalls,
    VoteOnDisk,
)
from kafkaesque.lab.sim.checkers.logs import (
    BatchWaitsForControl,
    CommittedNeverCut,
    EpochStamped,
    LeaderAppendOnly,
    LogMatching,
    OneChangeAtATime,
    SnapshotAtLogStart,
)
from kafkaesque.lab.sim.checkers.transactions import (
    Decisions,
    FencingIsFinal,
    TransactionsAreAtomic,
)
from kafkaesque.lab.sim.disk import SimulatedDisk
from kafkaesque.lab.sim.ground_truth import (
    CommittedEntry,
    EntryFact,
    EntryPlace,
    GroupTruth,
    ReplicaTruth,
    batch_fact,
    require,
)
from kafkaesque.lab.sim.view import ReplicaView
from kafkaesque.model.ids import GroupId, MemberId, NodeId, Offset


class Observer:
    """The ground truth of the whole cluster, and the checkers that use it."""

    def __init__(self, groups: list[GroupId], coordinator: GroupId | None = None) -> None:
        self.groups = {group: GroupTruth(group) for group in groups}
        self.replicas: dict[tuple[MemberId, int], ReplicaTruth] = {}
        self.reads = ReadersSeeCommitted()
        self.stale_reads = ReadsAreNotStale()
        self.tables = TablesAgree()
        self.checkers: list[Checker] = [
            TermNeverFalls(),
            ElectionSafety(),
            VoteOnDisk(),
            LeaderCompleteness(),
            OneChangeAtATime(),
            LogMatching(),
            BatchWaitsForControl(),
            LeaderAppendOnly(),
            CommittedNeverCut(),
            EpochStamped(),
            SnapshotAtLogStart(),
            AcknowledgedIsOnDisk(),
            MajorityHoldsWhatIsCommitted(self.replicas),
            StateMachineSafety(),
            LeaderCommitsItsOwnTerm(),
            CommitNeverFalls(),
            CommitIsKnownAfterRestart(),
            OffsetsAreDense(),
            ExactlyOnceInOrder(),
            AcknowledgedIsCommitted(),
            self.reads,
            self.stale_reads,
            self.tables,
        ]
        self.transactions: TransactionsAreAtomic | None = None
        if coordinator is not None:
            decisions = Decisions(coordinator)
            self.transactions = TransactionsAreAtomic(decisions)
            self.checkers += [FencingIsFinal(decisions), self.transactions]
        self._step_checks = _overriding(self.checkers, "steps")
        self._send_checks = _overriding(self.checkers, "sends")

    def replica_truth(
        self, node: NodeId, member: MemberId, group: GroupId, disk: SimulatedDisk
    ) -> ReplicaTruth:
        known = self.replicas.get((member, group))
        if known is None:
            known = self.replicas[(member, group)] = ReplicaTruth(node, member, disk)
        return known

    def disk_lost(self, member: MemberId) -> None:
        """The disk of `member` is lost, with its contents and the promises made from it."""
        for key in [key for key in self.replicas if key[0] == member]:
            del self.replicas[key]

    # Events from the harness

    def opened(self, view: ReplicaView) -> None:
        for checker in self.checkers:
            checker.opened(view)
        entries = view.entries
        numbers = range(entries.first_index, entries.last_index + 1)
        terms = {LogIndex(number): entries.term_at(LogIndex(number)) for number in numbers}
        view.truth.reopened(entries.first_index, entries.last_index, terms)
        view.truth.commit_index = NO_INDEX
        self.stepped(view)

    def sends(self, view: ReplicaView, message: Message) -> None:
        for checker in self._send_checks:
            checker.sends(view, message)

    def stepped(self, view: ReplicaView) -> None:
        """Called after every event of a replica."""
        state = view.state
        seen = (state.term, state.leader_id, state.commit_index)
        if seen == view.seen:
            return
        view.seen = seen
        for checker in self._step_checks:
            checker.steps(view)
        if (
            state.leader_id == view.member
            and state.term not in view.group.leaders
            and view.raft.leadership.role is Role.LEADER
        ):
            view.group.leaders[state.term] = view.member
            for checker in self.checkers:
                checker.leads(view, state.term)
        if state.commit_index != view.truth.commit_index:
            self._commit(view, state.commit_index)

    def _commit(self, view: ReplicaView, commit_index: LogIndex) -> None:
        group, log = view.group, view.state.log
        while group.committed_index < commit_index:
            index = LogIndex(group.committed_index + 1)
            term = log.term_at(index)
            require(term is not None, "a node commits what it has", f"{view} lacks {index}")
            fact = group.entries.get((index, term or NO_TERM))
            committed = CommittedEntry(term or NO_TERM, fact, view.state.term)
            require(committed.fact is not None, "a node commits what was written", view)
            for checker in self.checkers:
                checker.newly_committed(view, index, committed)
            group.committed.append(committed)
        first = LogIndex(view.truth.commit_index + 1)
        view.truth.commit_index = commit_index
        for checker in self.checkers:
            checker.commits(view, first, commit_index)

    def acknowledged(self, group: GroupTruth, fact: EntryFact) -> None:
        for checker in self.checkers:
            checker.acknowledged(group, fact)
        group.acked_offset = max(group.acked_offset, fact.end_offset)

    def tables_at(self, offset: Offset, tables: bytes) -> None:
        self.tables.applied(offset, tables)

    def check_watermarks(self, view: ReplicaView, log: Log, high_watermark: Offset) -> None:
        text = f"{view}: {log.log_start_offset}, {high_watermark}, {log.log_end_offset}"
        is_ordered = log.log_start_offset <= high_watermark <= log.log_end_offset
        require(is_ordered, "log start <= high watermark <= log end", text)


class LogWitness:
    """Reports the events of one log to the checkers."""

    def __init__(self, observer: Observer, view: ReplicaView, journal: RaftJournal) -> None:
        self._observer = observer
        self._view = view
        self._journal = journal
        self._new: tuple[LogIndex, Term] | None = None
        """The entry that is being written, if no node wrote it before."""

    def writes_batch(self, index: LogIndex, term: Term, payload: BatchPayload) -> None:
        """Called before the write: a power cut during it may leave the batch on the disk."""
        fact = batch_fact(payload.header, self._previous_term(index))
        self._new = None if (index, term) in self._view.group.entries else (index, term)
        for checker in self._observer.checkers:
            checker.writes(self._view, index, term, fact)
        self._view.group.batches[(index, term)] = bytes(payload.data)

    def did_not_write(self) -> None:
        """The disk rejected the write and nothing was written: another entry may take its index."""
        if self._new is not None:
            del self._view.group.entries[self._new]

    def wrote_batch(self, index: LogIndex, term: Term, payload: BatchPayload) -> None:
        view = self._view
        segment = view.entries.log._chain.active
        start = segment.size_bytes - payload.header.size_bytes
        self._wrote(
            index,
            term,
            batch_fact(payload.header, self._previous_term(index)),
            self._place(segment.file.path, start, segment.size_bytes, bytes(payload.data)),
        )

    def wrote_control(self, entry: Entry) -> None:
        offset = self._view.entries.next_offset
        previous = self._previous_term(entry.index)
        fact = EntryFact(entry.kind, (entry.payload,), previous, offset, offset)
        for checker in self._observer.checkers:
            checker.writes(self._view, entry.index, entry.term, fact)
        # The journal keeps records in memory until it is synced: this is where they will be written.
        journal = self._journal
        end = journal._file_end + len(journal._pending)
        place = self._place(journal._file.path, journal._file_end, end)
        self._wrote(entry.index, entry.term, fact, place)

    def cuts(self, index: LogIndex) -> None:
        for checker in self._observer.checkers:
            checker.cuts(self._view, index)
        self._view.truth.cut_from(index)

    def installed(self, snapshot: Snapshot) -> None:
        self._view.truth.reopened(LogIndex(snapshot.index + 1), snapshot.index, {})
        for checker in self._observer.checkers:
            checker.installed(self._view, snapshot)

    def _previous_term(self, index: LogIndex) -> Term:
        return self._view.entries.term_at(LogIndex(index - 1))

    def _place(self, path: str, start: int, end: int, batch: bytes = b"") -> EntryPlace:
        inode = self._view.truth.disk.inode_at(path)
        require(inode is not None, "what is written is somewhere", path)
        if inode is None:
            raise FileNotFoundError(path)
        return EntryPlace(inode, path, start, end, batch)

    def _wrote(self, index: LogIndex, term: Term, fact: EntryFact, place: EntryPlace) -> None:
        for checker in self._observer.checkers:
            checker.wrote(self._view, index, term, fact)
        self._view.truth.note(index, term, place)


def _overriding(checkers: list[Checker], hook: str) -> list[Checker]:
    """The checkers that override `hook`. Worth it for the two hooks that are called most often."""
    return [one for one in checkers if getattr(type(one), hook) is not getattr(Checker, hook)]
