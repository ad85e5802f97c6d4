"""The rules as the Raft paper and Ongaro's thesis state them; each test names its section.

Each test has a node in a state, a message or a tick, and the answers and the state after it.
"""

from __future__ import annotations

import pytest
from tests.broker.raft.group import Group, Lone, append, data, ids, log_of

from kafkaesque.broker.raft.messages import (
    Append,
    AppendRejected,
    AppendResponse,
    Heartbeat,
    HeartbeatResponse,
    InstallSnapshot,
    Message,
    PreVote,
    PreVoteResponse,
    RequestVote,
    TimeoutNow,
    VoteResponse,
)
from kafkaesque.broker.raft.types import (
    Entry,
    EntryKind,
    HardState,
    LogIndex,
    Membership,
    Role,
    Round,
    Snapshot,
    Term,
)
from kafkaesque.model.errors import InvariantBroken
from kafkaesque.model.ids import MemberId

ME, PEER, OTHER = ids(0, 1, 2)


def pre_vote(term: int, last: tuple[int, int], sender: MemberId = PEER) -> PreVote:
    return PreVote(sender, ME, Term(term), LogIndex(last[0]), Term(last[1]))


def request_vote(
    term: int, last: tuple[int, int], sender: MemberId = PEER, *, is_handover: bool = False
) -> RequestVote:
    return RequestVote(sender, ME, Term(term), LogIndex(last[0]), Term(last[1]), is_handover)


def vote(term: int, sender: MemberId = PEER, *, granted: bool = True) -> VoteResponse:
    return VoteResponse(sender, ME, Term(term), granted)


def heartbeat(term: int, commit: int = 0, round_: int = 1, sender: MemberId = PEER) -> Heartbeat:
    return Heartbeat(sender, ME, Term(term), LogIndex(commit), Round(round_), False)


def acknowledge(term: int, match: int, sender: MemberId = PEER) -> AppendResponse:
    return AppendResponse(sender, ME, Term(term), LogIndex(match))


def answer(
    term: int, round_: int, received: int, match: int, sender: MemberId = PEER
) -> HeartbeatResponse:
    return HeartbeatResponse(
        sender, ME, Term(term), Round(round_), LogIndex(received), LogIndex(match)
    )


def candidate(**state: object) -> Lone:
    """A node that has won the pre-vote of PEER."""
    node = Lone(**state)  # type: ignore[arg-type]
    node.raft.campaign()
    node.drive()
    node.step(PreVoteResponse(PEER, ME, node.term, granted=True))
    assert node.role is Role.CANDIDATE
    return node


def leader(**state: object) -> Lone:
    node = candidate(**state)
    node.step(vote(node.term))
    assert node.role is Role.LEADER
    return node


# Terms (Raft 5.1)


@pytest.mark.parametrize("make", [Lone, candidate, leader], ids=["follower", "candidate", "leader"])
def test_node_that_sees_a_later_term_becomes_a_follower_in_it(make: object) -> None:
    """Raft 5.1: a server that discovers its term is out of date immediately becomes follower."""
    node: Lone = make(term=2)  # type: ignore[operator]
    node.step(append(7, (0, 0), sender=OTHER))
    assert (node.role, node.term) == (Role.FOLLOWER, 7)
    assert node.raft.leadership.leader_id == OTHER


def test_stale_leader_is_informed_of_the_term() -> None:
    """Raft 5.1: requests with a stale term number are rejected."""
    node = Lone(term=5)
    node.step(append(3, (0, 0), log_of(3)))
    (answer,) = node.sent(HeartbeatResponse)
    assert (answer.term, answer.match_index) == (5, 0)
    assert node.raft.status().last_index == 0


def test_stale_candidate_is_refused() -> None:
    """Raft 5.1."""
    node = Lone(term=5)
    node.step(request_vote(4, (9, 4)))
    assert node.sent(VoteResponse) == [VoteResponse(ME, PEER, Term(5), granted=False)]


@pytest.mark.parametrize(
    "message",
    [vote(2), acknowledge(2, 1), answer(2, 1, 1, 1), TimeoutNow(PEER, ME, Term(2))],
    ids=lambda message: type(message).__name__,
)
def test_messages_of_a_past_term_are_ignored(message: Message) -> None:
    """Raft 5.1."""
    node = candidate(term=4)
    node.sent()
    node.step(message)
    assert (node.role, node.term) == (Role.CANDIDATE, 5)
    assert node.sent() == []


# Elections (Raft 5.2)


def test_follower_that_hears_a_leader_stays_follower() -> None:
    """Raft 5.2: it remains follower as long as it receives valid RPCs from a leader."""
    node = Lone(term=1)
    for _ in range(10):
        node.tick(9)
        node.step(heartbeat(1))
    assert node.role is Role.FOLLOWER


def test_follower_that_hears_no_leader_starts_a_pre_vote() -> None:
    """Raft 5.2 and thesis 9.6: first without a new term."""
    node = Lone(term=1, log=log_of(1, 1))
    node.tick(10)
    assert (node.role, node.term) == (Role.PRE_CANDIDATE, 1)
    asked = node.sent(PreVote)
    assert [(ask.to, ask.last_index, ask.last_term) for ask in asked] == [(1, 2, 1), (2, 2, 1)]


def test_candidate_enters_a_term_votes_for_itself_and_requests_votes() -> None:
    """Raft 5.2."""
    node = candidate(term=1)
    assert node.disk.durable.hard_state == HardState(Term(2), ME)
    assert [request.to for request in node.sent(RequestVote)] == [PEER, OTHER]


@pytest.mark.parametrize(("voters", "needed"), [(1, 0), (2, 1), (3, 1), (4, 2), (5, 2), (7, 3)])
def test_candidate_wins_with_a_majority(voters: int, needed: int) -> None:
    """Raft 5.2: a majority of the full cluster, its own vote included."""
    node = Lone(voters=range(voters))
    node.raft.campaign()
    node.drive()
    for sender in range(1, needed + 1):
        assert node.role is Role.PRE_CANDIDATE
        node.step(PreVoteResponse(MemberId(sender), ME, Term(0), granted=True))
    for sender in range(1, needed + 1):
        assert node.role is Role.CANDIDATE
        node.step(vote(1, MemberId(sender)))
    assert node.role is Role.LEADER


def test_repeated_vote_counts_once() -> None:
    """Raft 5.2: each server votes for at most one candidate, and the network may repeat it."""
    node = Lone(voters=range(5))
    node.raft.campaign()
    node.drive()
    for sender in (1, 2):
        node.step(PreVoteResponse(MemberId(sender), ME, Term(0), granted=True))
    node.step(vote(1), vote(1), vote(1))
    assert node.role is Role.CANDIDATE


def test_vote_of_a_stranger_does_not_count() -> None:
    """Raft 6: a candidate counts by the membership of its own log."""
    node = candidate()
    node.step(vote(1, MemberId(8)))
    assert node.role is Role.CANDIDATE


def test_follower_votes_once_in_a_term_first_come_first_served() -> None:
    """Raft 5.2."""
    node = Lone()
    node.step(request_vote(1, (0, 0), PEER), request_vote(1, (0, 0), OTHER))
    answers = node.sent(VoteResponse)
    assert [(reply.to, reply.granted) for reply in answers] == [(PEER, True), (OTHER, False)]


def test_vote_is_remembered_over_a_restart() -> None:
    """Raft 5.2, figure 2: votedFor is persistent."""
    node = Lone()
    node.step(request_vote(1, (0, 0), PEER))
    node.sent()
    node.start()
    node.step(request_vote(1, (0, 0), OTHER), request_vote(1, (0, 0), PEER))
    answers = node.sent(VoteResponse)
    assert [(reply.to, reply.granted) for reply in answers] == [(OTHER, False), (PEER, True)]


def test_candidate_follows_the_leader_of_its_term() -> None:
    """Raft 5.2: if the leader's term is at least as large, the candidate recognizes it."""
    node = candidate()
    node.step(heartbeat(1))
    assert (node.role, node.raft.leadership.leader_id) == (Role.FOLLOWER, PEER)


def test_split_vote_leads_to_another_attempt() -> None:
    """Raft 5.2."""
    node = candidate()
    node.tick(10)
    assert (node.role, node.term) == (Role.PRE_CANDIDATE, 1)


def test_candidate_that_lost_becomes_a_follower() -> None:
    """Raft 5.2."""
    node = candidate()
    node.step(vote(1, PEER, granted=False), vote(1, OTHER, granted=False))
    assert (node.role, node.term) == (Role.FOLLOWER, 1)


def test_two_leaders_in_a_term_stop_the_node() -> None:
    """Raft 5.2, Election Safety: continuing could only make it worse."""
    node = Lone(term=1)
    node.step(heartbeat(1, sender=PEER))
    with pytest.raises(InvariantBroken, match="two leaders in term 1"):
        node.step(heartbeat(1, sender=OTHER))


def test_leader_that_gets_a_message_of_another_leader_of_its_term_stops() -> None:
    """Raft 5.2, Election Safety."""
    node = leader()
    with pytest.raises(InvariantBroken, match="two leaders"):
        node.step(heartbeat(1))


# The log (Raft 5.3)


def test_leader_appends_and_sends_with_the_entry_before() -> None:
    """Raft 5.3."""
    node = leader(term=1, log=log_of(1))
    node.step(acknowledge(2, 2), acknowledge(2, 2, OTHER))
    node.sent()
    assert node.propose("a", "b") == 3
    sent = node.sent(Append)
    assert [(message.to, message.prev_index, message.prev_term) for message in sent] == [
        (PEER, 2, 2),
        (OTHER, 2, 2),
    ]
    assert [entry.payload for entry in sent[0].entries] == ["a", "b"]
    assert [entry.term for entry in sent[0].entries] == [2, 2]


def test_entry_on_a_majority_is_committed_with_all_before_it() -> None:
    """Raft 5.3."""
    node = leader(term=1, log=log_of(1, 1))
    node.propose("a")
    node.step(acknowledge(2, 4))
    assert node.commit == 4
    applied = [ready.committed for ready in node.readies if ready.committed]
    assert (applied[0].first, applied[-1].last) == (1, 4)


def test_follower_learns_the_commit_from_the_leader() -> None:
    """Raft 5.3: and applies in log order, no further than it has."""
    node = Lone(term=1)
    node.step(append(1, (0, 0), log_of(1, 1), commit=9))
    assert node.commit == 2


@pytest.mark.parametrize(
    ("log", "prev"),
    [(log_of(1), (2, 1)), (log_of(1, 1), (2, 2)), ([], (1, 1)), (log_of(1, 2), (2, 1))],
    ids=["missing", "other term", "empty", "later term"],
)
def test_follower_rejects_entries_that_do_not_match(
    log: list[Entry], prev: tuple[int, int]
) -> None:
    """Raft 5.3, the consistency check."""
    node = Lone(term=2, log=log)
    node.step(append(3, prev, [data(prev[0] + 1, 3)]))
    (refusal,) = node.sent(AppendRejected)
    assert refusal.prev_index == prev[0]
    assert node.disk.written.entries == log


@pytest.mark.parametrize(
    ("log", "prev", "sent", "expected"),
    [
        ((1, 1), (2, 1), (1,), (1, 1, 1)),
        ((1, 1), (1, 1), (1,), (1, 1)),
        ((1, 1, 1), (1, 1), (1,), (1, 1, 1)),
        ((1, 1, 1), (0, 0), (), (1, 1, 1)),
        ((1, 2, 2), (1, 1), (3,), (1, 3)),
        ((1, 2, 2, 2), (0, 0), (1, 2, 3), (1, 2, 3)),
    ],
    ids=["new", "known", "prefix", "heartbeat-like", "conflict", "conflict later"],
)
def test_only_conflicting_entries_are_cut(
    log: tuple[int, ...], prev: tuple[int, int], sent: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    """Raft 5.3: an old Append must not cut what a newer one brought."""
    node = Lone(term=3, log=log_of(*log))
    entries = [data(prev[0] + 1 + n, term) for n, term in enumerate(sent)]
    node.step(append(3, prev, entries))
    assert [entry.term for entry in node.disk.written.entries] == list(expected)
    assert node.sent(AppendResponse)[-1].match_index == prev[0] + len(sent)


# Figure 7 of the paper: the leader of term 8 and six possible followers.
LEADER_LOG = (1, 1, 1, 4, 4, 5, 5, 6, 6, 6)


@pytest.mark.parametrize(
    "follower_log",
    [
        (1, 1, 1, 4, 4, 5, 5, 6, 6),
        (1, 1, 1, 4),
        (1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 6),
        (1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 7, 7),
        (1, 1, 1, 4, 4, 4, 4),
        (1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 3),
    ],
    ids="abcdef",
)
def test_leader_brings_the_follower_of_figure_7_to_its_own_log(
    follower_log: tuple[int, ...],
) -> None:
    """Raft 5.3, figure 7. At most one probe for each of the follower's obsolete terms."""
    group = Group(3)
    for node, log in ((0, LEADER_LOG), (1, follower_log), (2, LEADER_LOG)):
        group.nodes[node] = Lone(node, term=7, log=log_of(*log))
    group.elect(0)
    refusals = [message for message in group.seen if isinstance(message, AppendRejected)]
    terms = [entry.term for entry in group[1].disk.durable.entries]
    assert terms == [*LEADER_LOG, 8]
    assert len(refusals) <= 3


# Safety (Raft 5.4)


@pytest.mark.parametrize(
    ("log", "last", "granted"),
    [
        ((1, 1), (2, 1), True),
        ((1, 1), (3, 1), True),
        ((1, 1), (1, 1), False),
        ((1, 1), (1, 2), True),
        ((1, 2), (9, 1), False),
        ((), (0, 0), True),
    ],
)
def test_vote_is_granted_only_to_an_up_to_date_log(
    log: tuple[int, ...], last: tuple[int, int], granted: bool
) -> None:
    """Raft 5.4.1: the later last term, then the longer log."""
    node = Lone(term=2, log=log_of(*log))
    node.step(pre_vote(2, last), request_vote(3, last))
    answers: list[PreVoteResponse | VoteResponse] = node.sent()
    assert [reply.granted for reply in answers] == [granted, granted]


def test_entries_of_earlier_terms_are_not_committed_by_counting() -> None:
    """Raft 5.4.2, figure 8."""
    node = leader(term=2, log=log_of(1, 2))
    node.step(acknowledge(3, 2), acknowledge(3, 2, OTHER))
    assert node.commit == 0
    node.step(acknowledge(3, 3))
    assert node.commit == 3


def test_committed_entry_is_never_cut() -> None:
    """Raft 5.4.3, State Machine Safety."""
    node = Lone(term=1, log=log_of(1, 1), commit=2)
    node.step(append(2, (1, 1), [data(2, 2)]))
    assert [entry.term for entry in node.disk.written.entries] == [1, 1]
    node.step(append(2, (0, 0), [data(1, 2)]))
    assert [entry.term for entry in node.disk.written.entries] == [1, 1]


def test_append_that_starts_below_the_commit_index_adds_entries_above_it() -> None:
    """Raft 5.4.3: committed entries are equal everywhere, here even where the log starts later."""
    node = Lone(term=1, log=log_of(1, 1, 1), commit=3)
    node.drive()
    node.disk.compact(Snapshot(LogIndex(2), Term(1), Membership(ids(0, 1, 2)), "state"))
    node.step(append(2, (0, 0), log_of(1, 1, 1, 1, 2), commit=4))
    assert [entry.term for entry in node.disk.written.entries] == [1, 1, 2]
    assert node.commit == 4
    assert node.sent(AppendResponse)[-1].match_index == 5


def test_follower_that_is_cut_into_its_leaders_entries_stops() -> None:
    """Raft 5.3, Log Matching: one term, one leader, one entry at an index."""
    node = Lone(term=2)
    node.step(append(2, (0, 0), log_of(2, 2)))
    with pytest.raises(InvariantBroken, match="of this term's leader"):
        node.step(append(2, (0, 0), log_of(1)))


# Persistence (Raft figure 2, thesis 10.2.1)


def test_vote_is_not_given_before_it_is_on_disk() -> None:
    """Raft figure 2: persistent state is updated on stable storage before responding."""
    node = Lone()
    node.is_slow = True
    node.step(request_vote(1, (0, 0)))
    assert node.sent() == []
    node.sync()
    assert node.sent(VoteResponse) == [VoteResponse(ME, PEER, Term(1), granted=True)]


def test_candidate_requests_votes_only_when_its_own_vote_is_on_disk() -> None:
    """Raft figure 2."""
    node = Lone()
    node.is_slow = True
    node.raft.campaign()
    node.step(PreVoteResponse(PEER, ME, Term(0), granted=True))
    assert node.sent(RequestVote) == []
    node.sync()
    assert len(node.sent(RequestVote)) == 2


def test_candidate_requests_votes_only_when_its_log_is_on_disk() -> None:
    """Votes for a log that a crash can shorten could elect a node that lacks committed entries."""
    node = Lone(term=1)
    node.is_slow = True
    node.step(append(1, (0, 0), log_of(1)))
    node.tick(10)
    node.step(PreVoteResponse(OTHER, ME, Term(1), granted=True))
    node.sync(1)
    assert node.sent(RequestVote) == []
    node.sync()
    assert [request.last_index for request in node.sent(RequestVote)] == [1, 1]


def test_entries_are_not_acknowledged_before_they_are_on_disk() -> None:
    """Raft figure 2. Any number of Appends costs one answer per sync."""
    node = Lone(term=1)
    node.is_slow = True
    node.step(append(1, (0, 0), log_of(1)), append(1, (1, 1), [data(2, 1)]))
    node.step(append(1, (2, 1), [data(3, 1)]))
    assert node.sent(AppendResponse) == []
    node.sync(2)
    assert [message.match_index for message in node.sent(AppendResponse)] == [2]
    node.sync()
    assert [message.match_index for message in node.sent(AppendResponse)] == [3]


def test_nothing_is_acknowledged_in_a_term_that_is_not_on_disk() -> None:
    node = Lone(term=1, log=log_of(1))
    node.is_slow = True
    node.step(append(2, (1, 1)), heartbeat(2))
    assert node.sent(AppendResponse) == []
    node.step(heartbeat(2))
    assert [message.match_index for message in node.sent(HeartbeatResponse)] == [0]
    node.sync()
    assert [message.match_index for message in node.sent(AppendResponse)] == [1]


def test_leader_sends_before_its_own_disk_has_it_and_counts_itself_after() -> None:
    """Thesis 10.2.1."""
    node = leader()
    node.step(acknowledge(1, 1))
    node.is_slow = True
    node.sent()
    node.propose("a")
    assert len(node.sent(Append)) >= 1
    node.step(acknowledge(1, 2))
    assert node.commit == 1
    node.sync()
    assert node.commit == 2


def test_majority_of_followers_commits_without_the_leaders_disk() -> None:
    """Thesis 10.2.1. Nothing is applied before it is on the node's own disk."""
    node = leader()
    node.step(acknowledge(1, 1), acknowledge(1, 1, OTHER))
    node.is_slow = True
    node.propose("a")
    node.step(acknowledge(1, 2), acknowledge(1, 2, OTHER))
    assert node.commit == 2
    assert node.raft.status().applied_index == 1
    node.sync()
    assert node.raft.status().applied_index == 2


# Membership (Raft 6, thesis 4)


def test_new_membership_applies_when_appended_and_is_undone_when_cut() -> None:
    """Thesis 4.1: each server uses the latest configuration in its log, committed or not."""
    node = Lone(term=1, log=log_of(1))
    change = Entry(LogIndex(2), Term(1), EntryKind.MEMBERSHIP, 64, Membership(ids(0, 1)))
    node.step(append(1, (1, 1), [change]))
    assert node.raft.status().membership == Membership(ids(0, 1))
    node.step(append(2, (1, 1), [data(2, 2)], sender=OTHER))
    assert node.raft.status().membership == Membership(ids(0, 1, 2))


def test_node_that_hears_a_leader_ignores_candidates() -> None:
    """Thesis 4.2.3: removed servers must not disturb."""
    node = Lone(term=1)
    node.step(heartbeat(1), request_vote(9, (9, 8), OTHER), pre_vote(9, (9, 8), OTHER))
    assert node.term == 1
    assert [reply.granted for reply in node.sent(PreVoteResponse)] == [False]
    node.tick(9)
    node.step(request_vote(9, (9, 8), OTHER))
    assert node.term == 1
    node.tick()
    node.step(request_vote(9, (9, 8), OTHER))
    assert node.sent(VoteResponse)[-1].granted


def test_vote_request_of_a_leadership_transfer_is_answered() -> None:
    """Thesis 4.2.3: leadership transfer carries a flag."""
    node = Lone(term=1)
    node.step(heartbeat(1), request_vote(2, (0, 0), OTHER, is_handover=True))
    assert [reply.granted for reply in node.sent(VoteResponse)] == [True]


def test_leader_ignores_candidates_too() -> None:
    """Thesis 4.2.3."""
    node = leader()
    node.step(request_vote(9, (9, 8)))
    assert (node.role, node.term) == (Role.LEADER, 1)


# Snapshots (Raft 7)


def snapshot(index: int, term: int) -> Snapshot:
    return Snapshot(LogIndex(index), Term(term), Membership(ids(0, 1, 2)), "state")


def install(term: int, index: int, last_term: int) -> InstallSnapshot:
    return InstallSnapshot(PEER, ME, Term(term), snapshot(index, last_term))


def test_snapshot_replaces_a_log_that_lacks_its_last_entry() -> None:
    """Raft 7."""
    node = Lone(term=2, log=log_of(1, 1))
    node.is_slow = True
    node.step(install(2, 5, 2))
    assert node.sent(AppendResponse) == []
    assert node.raft.status().durable_index == 0
    node.sync()
    assert [message.match_index for message in node.sent(AppendResponse)] == [5]
    assert node.disk.durable.snapshot.index == 5
    assert (node.commit, node.raft.status().applied_index) == (5, 5)


def test_snapshot_of_entries_in_the_log_keeps_the_log() -> None:
    """Raft 7: if the entry exists, retain the entries following it."""
    node = Lone(term=1, log=log_of(1, 1, 1))
    node.step(install(1, 2, 1))
    assert len(node.disk.durable.entries) == 3
    assert node.commit == 2
    assert [message.match_index for message in node.sent(AppendResponse)] == [2]


def test_snapshot_of_the_past_changes_nothing() -> None:
    """Raft 7."""
    node = Lone(term=1, log=log_of(1, 1, 1), commit=3)
    node.step(install(1, 2, 1))
    assert node.commit == 3
    assert [message.match_index for message in node.sent(AppendResponse)] == [3]


def test_entries_follow_a_snapshot_that_is_being_installed() -> None:
    node = Lone(term=2)
    node.is_slow = True
    node.step(install(2, 5, 2), append(2, (5, 2), [data(6, 2)], commit=6))
    assert node.raft.status().last_index == 6
    assert node.sent(AppendResponse) == []
    node.sync(1)
    assert [message.match_index for message in node.sent(AppendResponse)] == [5]
    node.sync()
    assert [message.match_index for message in node.sent(AppendResponse)] == [6]
    assert node.raft.status().applied_index == 6


def test_node_does_not_campaign_while_a_snapshot_is_installed() -> None:
    node = Lone(term=2)
    node.is_slow = True
    node.step(install(2, 5, 2))
    node.tick(40)
    assert node.role is Role.FOLLOWER


# Clients (Raft 8)


def test_leader_starts_its_term_with_a_no_op() -> None:
    """Raft 8."""
    node = leader(term=1, log=log_of(1))
    assert node.disk.durable.entries[-1].kind is EntryKind.NOOP
    assert not node.raft.leadership.is_confirmed
    node.step(acknowledge(2, 2))
    assert node.raft.leadership.is_confirmed


def test_leader_without_a_majority_steps_down() -> None:
    """Thesis 6.2: if an election timeout elapses without a round of heartbeats to a majority."""
    node = leader()
    node.tick(20)
    assert (node.role, node.raft.leadership.leader_id) == (Role.FOLLOWER, None)
