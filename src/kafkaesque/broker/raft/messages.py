"""What nodes of one group say to each other. Values only; which group is the driver's business.

`term` is always the term the sender is in. A message may be lost, delayed, repeated and
overtaken; it may not be altered.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from kafkaesque.broker.raft.types import Entry, LogIndex, Round, Snapshot, Term
from kafkaesque.model.ids import MemberId


class PreVote(NamedTuple):
    """Would you vote for me in term + 1? Changes nothing at the receiver (thesis 9.6)."""

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
    """The leader itself asked for this election: its lease does not stand in the way."""


class VoteResponse(NamedTuple):
    """`granted` leaves only when the vote is on the sender's disk."""

    sender: MemberId
    to: MemberId
    term: Term
    granted: bool


class Append(NamedTuple):
    """Entries prev_index + 1, ... to be put after the entry (prev_index, prev_term)."""

    sender: MemberId
    to: MemberId
    term: Term
    prev_index: LogIndex
    prev_term: Term
    commit_index: LogIndex
    entries: tuple[Entry, ...]


class AppendResponse(NamedTuple):
    """All entries up to `match_index` are those of the leader, and on the sender's disk."""

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
    """The same for every member apart from `to`, so a driver can send those of all its groups to
    one peer as one frame."""

    sender: MemberId
    to: MemberId
    term: Term
    commit_index: LogIndex
    round: Round
    may_quiesce: bool
    """All members hold everything and all is committed: sleep until something happens."""


class HeartbeatResponse(NamedTuple):
    """Entries up to `received_index` are the leader's, in memory; those up to `match_index` are on
    disk too, as in AppendResponse. match_index <= received_index"""

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
    """The leader hands over: start an election at once (thesis 3.10)."""

    sender: MemberId
    to: MemberId
    term: Term


FromLeader: TypeAlias = Append | Heartbeat | InstallSnapshot | TimeoutNow
Response: TypeAlias = (
    PreVoteResponse | VoteResponse | AppendResponse | AppendRejected | HeartbeatResponse
)
Message: TypeAlias = FromLeader | Response | PreVote | RequestVote
