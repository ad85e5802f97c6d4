"""The values of Raft: ids, entries, memberships, snapshots, and the disk as the rules see it.

Values only. Messages between nodes are in `messages`, the effects for the driver in `ready`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Final, NamedTuple, NewType, Protocol

from kafkaesque.model.errors import check
from kafkaesque.model.ids import MemberId

Term = NewType("Term", int)
LogIndex = NewType("LogIndex", int)
"""Ordinal of an entry in a group's log; the first entry has index 1."""
Round = NewType("Round", int)
"""Ordinal of a broadcast of heartbeats within one leadership; the first is 1."""
SyncToken = NewType("SyncToken", int)
"""Names a Ready that must reach the disk. Confirming one confirms all before it."""

NO_TERM: Final = Term(0)
NO_INDEX: Final = LogIndex(0)
NO_ROUND: Final = Round(0)

SMALL_ENTRY_BYTES: Final = 64
"""What an entry of our own (no-op, membership) counts in windows and messages."""


class Role(Enum):
    FOLLOWER = "follower"
    PRE_CANDIDATE = "pre-candidate"
    CANDIDATE = "candidate"
    LEADER = "leader"


class EntryKind(IntEnum):
    """Stored with each entry, so the numbers are for ever."""

    DATA = 0
    NOOP = 1
    MEMBERSHIP = 2


@dataclass(frozen=True, slots=True)
class Membership:
    """Who votes and who only follows. Both sorted; no node is in both."""

    voters: tuple[MemberId, ...] = ()
    learners: tuple[MemberId, ...] = ()

    def __post_init__(self) -> None:
        for nodes in (self.voters, self.learners):
            check(list(nodes) == sorted(set(nodes)), f"members {nodes} are not sorted and unique")
        check(not set(self.voters) & set(self.learners), f"{self} has a learner that votes")

    def __contains__(self, node: MemberId) -> bool:
        return node in self.voters or node in self.learners

    @property
    def nodes(self) -> tuple[MemberId, ...]:
        return self.voters + self.learners


# Not frozen: made for every batch on every replica, and that would cost four times as much.
@dataclass(slots=True)
class Entry:
    """One entry. `payload` is opaque for DATA (whatever was proposed, or the storage's own
    reference to it), None for NOOP, and the new Membership for MEMBERSHIP."""

    index: LogIndex
    term: Term
    kind: EntryKind
    size_bytes: int
    payload: object


class Proposal(NamedTuple):
    """What a client of the log wants appended: one Kafka batch, for a partition."""

    payload: object
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Stands for all entries up to `index`. `state` is opaque: for a partition where its log
    starts and which Kafka offset comes next, for the controller its tables."""

    index: LogIndex
    term: Term
    membership: Membership
    state: object


class HardState(NamedTuple):
    """What must never be forgotten: on disk before any message that rests on it leaves."""

    term: Term
    vote: MemberId | None


FRESH: Final = HardState(NO_TERM, None)
"""Of a node that never took part."""


@dataclass(frozen=True, slots=True)
class MembershipAt:
    """The membership that the entry (or snapshot) at `index` brought."""

    index: LogIndex
    membership: Membership


@dataclass(frozen=True, slots=True)
class Restart:
    """What the driver found on its disk, all of it synced before it is handed in."""

    hard_state: HardState = FRESH
    memberships: Sequence[MembershipAt] = ()
    """In order of index: that of the snapshot at the log's start, then every MEMBERSHIP entry."""
    commit_index: LogIndex = NO_INDEX
    """A hint, saved at leisure: anything at or below the true commit index will do."""
    applied_index: LogIndex = NO_INDEX
    """How far the state machine is; at least the snapshot's index."""


class RaftLog(Protocol):
    """The log on disk. The rules ask only for what was confirmed by `synced`, and never for what
    a Ready told the driver to cut. Terms never decrease along the log."""

    @property
    def first_index(self) -> LogIndex:
        """1 at first; moves up, at any time, when entries below a snapshot are dropped.
        first_index <= applied index + 1."""

    @property
    def last_index(self) -> LogIndex:
        """first_index - 1 when the log is empty. Read once, at the start."""

    def term_at(self, index: LogIndex) -> Term:
        """For first_index - 1 <= index <= last_index; 0 for index 0."""

    def entries_between(
        self, first: LogIndex, last: LogIndex, size_bytes_max: int
    ) -> Sequence[Entry]:
        """A prefix of [first, last], at least one entry, stopping before `size_bytes_max` is
        passed. Payloads may be references that the driver resolves when it sends."""

    def snapshot(self) -> Snapshot:
        """The newest one: first_index - 1 <= its index <= applied index."""


class Refusal(Enum):
    """Why a request was not taken; nothing was changed."""

    NOT_LEADER = "not the leader"
    TRANSFERRING = "leadership is being handed over"
    OVERLOADED = "too much is uncommitted or unconfirmed"
    CHANGE_PENDING = "the last membership change is not committed"
    TERM_UNCONFIRMED = "no entry of this term is committed yet"
    NOT_CAUGHT_UP = "the learner lags too far behind"
    NO_SUCH_MEMBER = "not a member that this can be done with"
    NOTHING_TO_CHANGE = "the membership is so already"
    LAST_VOTER = "a group needs a voter"


class Refused(Exception):
    """An expected failure; `leader_id` is where to try instead, if known."""

    def __init__(self, reason: Refusal, leader_id: MemberId | None) -> None:
        super().__init__(reason.value)
        self.reason = reason
        self.leader_id = leader_id
