"""Opens a replica from its log on disk."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from kafkaesque.broker.raft.config import RaftConfig
from kafkaesque.broker.raft.core import Raft
from kafkaesque.broker.raft.types import NO_INDEX, NO_TERM, Membership
from kafkaesque.broker.replication.entry_log import BatchPayload, EntryLog
from kafkaesque.broker.replication.raft_journal import LogStart, RaftJournal
from kafkaesque.broker.replication.replica import Replica
from kafkaesque.broker.replication.replica_set import ReplicaSet
from kafkaesque.broker.replication.rules.state_machine import StateMachine
from kafkaesque.broker.storage.log import Log
from kafkaesque.model.ids import GroupId, MemberId, Offset
from kafkaesque.records.batch import read_header


class ElectionJitter:
    """Election jitter: each member draws from its own part of the range, so that members campaign
    one after the other. Pure chance would make the two members left of three draw the same of five
    numbers once in five times; then both campaign, each votes for itself, and nothing happens for a
    second or two.

    The first part belongs to another member in each group, so that the other brokers share a lost
    broker's leaderships. Members that disagree about the membership during a change may have the
    same part; then chance decides within it, as it does for a member that is not a voter.
    """

    __slots__ = ("_group", "_member", "_membership")

    def __init__(
        self, member: MemberId, group: GroupId, membership: Callable[[], Membership]
    ) -> None:
        """`membership` returns the latest membership in the group's log."""
        self._member = member
        self._group = group
        self._membership = membership

    def __call__(self, bound: int) -> int:
        voters = self._membership().voters
        count = len(voters)
        if self._member not in voters or count < 2 or bound < count:
            return random.randrange(bound)  # noqa: S311 - keeps candidates apart, hides nothing
        turn = (voters.index(self._member) + self._group) % count
        width = bound // count
        return turn * (bound - width) // (count - 1) + random.randrange(width)  # noqa: S311


def batch_payload(data: memoryview) -> BatchPayload:
    """Parses a batch received from a peer."""
    return BatchPayload(data, read_header(data))


def first_start(members: Sequence[MemberId]) -> LogStart:
    """The start of a new group's log. Without members for a replica that joins: its leader sends
    them."""
    return LogStart(NO_INDEX, NO_TERM, Offset(0), Membership(tuple(sorted(members))))


def open_replica(
    group: GroupId,
    log: Log,
    first_members: Sequence[MemberId],
    replicas: ReplicaSet,
    machine: StateMachine,
    config: RaftConfig,
    *,
    is_clean: bool,
    flush_messages: int = 1,
) -> Replica:
    """Open a replica. A group that is new to this node starts with `first_members`. Blocking."""
    if replicas.raft_journal.facts(group) is None:
        replicas.raft_journal.create(group, first_start(first_members))
    entries = EntryLog.open(group, log, replicas.raft_journal, is_clean=is_clean)
    sync_found(entries, replicas.raft_journal)
    return new_replica(group, entries, replicas, machine, config, flush_messages=flush_messages)


def sync_found(entries: EntryLog, journal: RaftJournal) -> None:
    """Sync what was found: data in the page cache only must not be acknowledged. Blocking."""
    entries.log.sync()
    if journal.needs_sync:
        journal.sync()


def new_replica(
    group: GroupId,
    entries: EntryLog,
    replicas: ReplicaSet,
    machine: StateMachine,
    config: RaftConfig,
    *,
    flush_messages: int,
) -> Replica:
    jitter = ElectionJitter(replicas.member, group, entries.latest_membership)
    raft = Raft(replicas.member, config, entries, jitter, entries.restart())
    return Replica(group, raft, entries, replicas, machine, flush_messages=flush_messages)
