"""The messages between the nodes of one group. The driver adds the group.

`term` is always the sender's current term. A message may be lost, delayed, duplicated and reordered,
but not corrupted.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from kafkaesque.broker.raft.types import Entry, LogIndex, Round, Snapshot, Term
from kafkaesque.model.ids import MemberId


class PreVote(NamedTuple):
    """Asks whether the receiver would vote for the sender in term + 1 (thesis 9.6)."""

    sender: MemberId
    to: MemberId
    term: Term
    last_index: LogIndex
    last_term: Term


class PreVoteResponse(NamedTuple):
    sender: MemberId
    to: MemberId
    term: Term
    granted: bool


class RequestVote(NamedTuple):
    """Sent only when the candidate's own vote and its log up to `last_index` are on its disk."""

    sender: MemberId
    to: MemberId
    term: Term
    last_index: LogIndex
    last_term: Term
    is_handover: bool
    """The leader requested this election itself: its lease does not prevent it."""


class VoteResponse(NamedTuple):
    """Granted only once the vote is on the sender's disk."""

    sender: MemberId
    to: MemberId
    term: Term
    granted: bool


class Append(NamedTuple):
    """Entries prev_index + 1, ... to append after the entry (prev_index, prev_term)."""

    sender: MemberId
    to: MemberId
    term: Term
    prev_index: LogIndex
    prev_term: Term
    commit_index: LogIndex
    entries: tuple[Entry, ...]


class AppendResponse(NamedTuple):
    """The sender's log equals the leader's up to `match_index`, on disk."""

    sender: MemberId
    to: MemberId
    term: Term
    match_index: LogIndex


class AppendRejected(NamedTuple):
    """The entry at `prev_index` is missing or of another term. No entry above `hint_index` can
    match, nor can one at or below it whose term is above `hint_term`."""

    sender: MemberId
    to: MemberId
    term: Term
    prev_index: LogIndex
    hint_index: LogIndex
    hint_term: Term


class Heartbeat(NamedTuple):
    """Equal for every member except for `to`, so a driver can send the heartbeats of all its groups
    to one peer in one frame."""

    sender: MemberId
    to: MemberId
    term: Term
    commit_index: LogIndex
    round: Round
    may_quiesce: bool
    """All members have everything and all is committed: the group may quiesce."""


class HeartbeatResponse(NamedTuple):
    """The sender's log equals the leader's up to `received_index`, in memory; up to `match_index`
    on disk, as in AppendResponse. match_index <= received_index"""

    sender: MemberId
    to: MemberId
    term: Term
    round: Round
    received_index: LogIndex
    match_index: LogIndex


class InstallSnapshot(NamedTuple):
    sender: MemberId
    to: MemberId
    term: Term
    snapshot: Snapshot


class TimeoutNow(NamedTuple):
    """The leader transfers leadership: start an election at once (thesis 3.10)."""

    sender: MemberId
    to: MemberId
    term: Term


FromLeader: TypeAlias = Append | Heartbeat | InstallSnapshot | TimeoutNow
Response: TypeAlias = (
    PreVoteResponse | VoteResponse | AppendResponse | AppendRejected | HeartbeatResponse
)
Message: TypeAlias = FromLeader | Response | PreVote | RequestVote
