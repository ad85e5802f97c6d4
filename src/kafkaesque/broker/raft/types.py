"""The values of Raft: ids, entries, memberships, snapshots, and the interface to the log on disk.

Messages between nodes are in `messages`, the effects for the driver in `ready`.
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
"""Position of an entry in a group's log; the first entry has index 1."""
Round = NewType("Round", int)
"""Number of a round of heartbeats within one leadership; the first is 1."""
SyncToken = NewType("SyncToken", int)
"""Identifies a Ready that must be persisted. Confirming one confirms all before it."""

NO_TERM: Final = Term(0)
NO_INDEX: Final = LogIndex(0)
NO_ROUND: Final = Round(0)

SMALL_ENTRY_BYTES: Final = 64
"""The size assumed for Raft's own entries (no-op, membership)."""


class Role(Enum):
    FOLLOWER = "follower"
    PRE_CANDIDATE = "pre-candidate"
    CANDIDATE = "candidate"
    LEADER = "leader"


class EntryKind(IntEnum):
    """Stored with each entry: the numbers must never change."""

    DATA = 0
    NOOP = 1
    MEMBERSHIP = 2


@dataclass(frozen=True, slots=True)
class Membership:
    """Voters and learners. Both sorted; no node is in both."""

    voters: tuple[MemberId, ...] = ()
    learners: tuple[MemberId, ...] = ()

    def __post_init__(self) -> None:
        for nodes in (self.voters, self.learners):
            check(list(nodes) == sorted(set(nodes)), f"members {nodes} are not sorted and unique")
        check(
            not set(self.voters) & set(self.learners),
            f"{self} has a member that is voter and learner",
        )

    def __contains__(self, node: MemberId) -> bool:
        return node in self.voters or node in self.learners

    @property
    def nodes(self) -> tuple[MemberId, ...]:
        return self.voters + self.learners


# Not frozen: created for every batch on every replica, and freezing costs four times as much.
@dataclass(slots=True)
class Entry:
    """One entry. `payload` is opaque for DATA (what was proposed, or the storage's reference to
    it), None for NOOP, and the new Membership for MEMBERSHIP."""

    index: LogIndex
    term: Term
    kind: EntryKind
    size_bytes: int
    payload: object


class Proposal(NamedTuple):
    """A payload to append: for a partition, one Kafka batch."""

    payload: object
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Replaces all entries up to `index`. `state` is opaque: for a partition the start of its log
    and the next Kafka offset, for the controller its tables."""

    index: LogIndex
    term: Term
    membership: Membership
    state: object


class HardState(NamedTuple):
    """Term and vote: on disk before any message that depends on them is sent."""

    term: Term
    vote: MemberId | None


FRESH: Final = HardState(NO_TERM, None)
"""The hard state of a new node."""


@dataclass(frozen=True, slots=True)
class MembershipAt:
    """The membership introduced by the entry (or snapshot) at `index`."""

    index: LogIndex
    membership: Membership


@dataclass(frozen=True, slots=True)
class Restart:
    """The state that the driver found on its disk; all of it is synced."""

    hard_state: HardState = FRESH
    memberships: Sequence[MembershipAt] = ()
    """In order of index: that of the snapshot at the log's start, then every MEMBERSHIP entry."""
    commit_index: LogIndex = NO_INDEX
    """A hint, saved from time to time: any index up to the true commit index is correct."""
    applied_index: LogIndex = NO_INDEX
    """The last entry applied to the state machine; at least the snapshot's index."""


class RaftLog(Protocol):
    """The log on disk. The rules read only entries that `synced` confirmed, and none that a Ready
    ordered the driver to truncate. Terms never decrease along the log."""

    @property
    def first_index(self) -> LogIndex:
        """1 at first; may grow at any time, when entries below a snapshot are dropped.
        first_index <= applied index + 1."""

    @property
    def last_index(self) -> LogIndex:
        """first_index - 1 when the log is empty. Read once, at the start."""

    def term_at(self, index: LogIndex) -> Term:
        """For first_index - 1 <= index <= last_index; 0 for index 0."""

    def entries_between(
        self, first: LogIndex, last: LogIndex, size_bytes_max: int
    ) -> Sequence[Entry]:
        """Returns a prefix of [first, last]: at least one entry, at most `size_bytes_max` if more.
        Payloads may be references that the driver resolves when it sends."""

    def snapshot(self) -> Snapshot:
        """The newest snapshot: first_index - 1 <= its index <= applied index."""


class Refusal(Enum):
    """Why a request was refused; nothing was changed."""

    NOT_LEADER = "not the leader"
    TRANSFERRING = "leadership is being transferred"
    OVERLOADED = "too much is uncommitted or unconfirmed"
    CHANGE_PENDING = "the last membership change is not committed"
    TERM_UNCONFIRMED = "no entry of this term is committed yet"
    NOT_CAUGHT_UP = "the learner lags too far"
    NO_SUCH_MEMBER = "not a suitable member"
    NOTHING_TO_CHANGE = "the membership does not change"
    LAST_VOTER = "a group needs a voter"


class Refused(Exception):
    """A refused request; `leader_id` is the node to try instead, if known."""

    def __init__(self, reason: Refusal, leader_id: MemberId | None) -> None:
        super().__init__(reason.value)
        self.reason = reason
        self.leader_id = leader_id
