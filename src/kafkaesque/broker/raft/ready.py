"""The output of the rules: the bundle of effects, and a view of the state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from kafkaesque.broker.raft.messages import Message
from kafkaesque.broker.raft.types import (
    Entry,
    HardState,
    LogIndex,
    Membership,
    Role,
    Snapshot,
    SyncToken,
    Term,
)
from kafkaesque.model.ids import MemberId


class Leadership(NamedTuple):
    """This node's role, term and leader, as Raft sees them."""

    role: Role
    term: Term
    leader_id: MemberId | None
    is_confirmed: bool
    """An entry of this term is committed. Only then may clients see the term as a leader epoch, and
    only then does the leader's commit index cover everything that is committed (Raft 8)."""


class Committed(NamedTuple):
    """Entries first to last, inclusive, all on this node's disk."""

    first: LogIndex
    last: LogIndex


@dataclass(frozen=True, slots=True)
class ReadReady:
    """The read requested with `context` may be served once `index` is applied."""

    context: object
    index: LogIndex


# Not frozen: created for every step of every group, and freezing costs four times as much.
@dataclass(slots=True, kw_only=True)
class Ready:
    """What the driver must do. Each effect appears in exactly one Ready.

    1. *Persist*, in this order: `hard_state`; then `snapshot`, which replaces the whole log; then
       truncate the log from `truncate_from` on; then append `entries`. Readies of one group reach the
       disk in the order in which they were taken.
    2. *Sync*, whenever convenient, together with other writes; when all of it is durable, call
       `synced(token)`. It covers every earlier token too. If it fails: `storage_failed()`.
    3. *Send* `messages`, at once, before or after 1 and 2. They promise nothing that is not on
       disk already: a vote, an acknowledgement and the leader's own share in a majority do not
       exist until `synced` is called, and then come in the next Ready. So no order of handling a
       Ready can acknowledge before the sync.
    4. *Apply* `committed`, in order, after the `snapshot` if there is one; then `applied(last)`.
    5. Serve `reads` when their index is applied.

    A driver that does all this at once and waits for its disk calls `advance(ready)` instead.
    Messages may be dropped; nothing else may. After a crash the disk may hold any prefix of what
    was not confirmed, in the order of 1.
    """

    token: SyncToken | None = None
    """None when there is nothing to persist."""
    hard_state: HardState | None = None
    snapshot: Snapshot | None = None
    truncate_from: LogIndex | None = None
    entries: tuple[Entry, ...] = ()
    messages: tuple[Message, ...] = ()
    committed: Committed | None = None
    commit_index: LogIndex
    """May be beyond `committed`: a majority of others may have entries not yet on our disk."""
    reads: tuple[ReadReady, ...] = ()
    leadership: Leadership | None = None
    """Set when it changed. When leadership is lost, uncommitted proposals may be lost too."""

    @property
    def is_only_messages(self) -> bool:
        """Nothing to write, apply or serve."""
        return (
            self.token is None
            and self.committed is None
            and self.leadership is None
            and not self.reads
        )


class PeerStatus(NamedTuple):
    match_index: LogIndex
    """The peer's log equals ours up to here, on its disk."""
    next_index: LogIndex
    state: str
    is_learner: bool
    is_active: bool
    """Answered in this election timeout or the one before, and is reachable."""


@dataclass(slots=True, kw_only=True)
class Status:
    """A copy of the state for drivers, metrics and tests."""

    node_id: MemberId
    leadership: Leadership
    vote: MemberId | None
    membership: Membership
    commit_index: LogIndex
    applied_index: LogIndex
    durable_index: LogIndex
    """Our log is on our disk up to here. Raft relies on the driver for this: with flush=never, ours
    may confirm what is only written (`Replica._await_sync`)."""
    last_index: LogIndex
    majority_index: LogIndex
    """On the disks of a majority of voters, whatever its term; 0 unless leader."""
    is_quiesced: bool
    has_lease: bool
    transfer_target: MemberId | None
    peers: Mapping[MemberId, PeerStatus]
    """Empty unless leader."""

    def in_sync(self, lag_entries_max: int) -> list[MemberId]:
        """Active voters, this leader included, that lag by at most `lag_entries_max` entries."""
        floor = self.last_index - lag_entries_max
        peers = [
            node
            for node, peer in self.peers.items()
            if not peer.is_learner and peer.is_active and peer.match_index >= floor
        ]
        if self.node_id in self.membership.voters and self.leadership.role is Role.LEADER:
            peers.append(self.node_id)
        return sorted(peers)
