"""`Raft` as its driver uses it: refusals, the content of a Ready, reports of the driver."""

from __future__ import annotations

import pytest
from tests.broker.raft.disk import Disk
from tests.broker.raft.group import Group, Lone, append, data, ids, log_of

from kafkaesque.broker.raft.config import RaftConfig
from kafkaesque.broker.raft.core import Raft
from kafkaesque.broker.raft.membership import ChangeKind, MembershipChange
from kafkaesque.broker.raft.messages import (
    Append,
    AppendResponse,
    Heartbeat,
    HeartbeatResponse,
    InstallSnapshot,
    PreVoteResponse,
    RequestVote,
    TimeoutNow,
    VoteResponse,
)
from kafkaesque.broker.raft.types import (
    Entry,
    EntryKind,
    LogIndex,
    Membership,
    MembershipAt,
    Proposal,
    Refusal,
    Refused,
    Restart,
    Role,
    Round,
    Snapshot,
    SyncToken,
    Term,
)
from kafkaesque.model.errors import InvariantBroken
from kafkaesque.model.ids import MemberId

ME, PEER, OTHER = ids(0, 1, 2)


def refusal_of(call: object, *arguments: object) -> Refused:
    with pytest.raises(Refused) as caught:
        call(*arguments)  # type: ignore[operator]
    return caught.value


# A group of one


def test_group_of_one_leads_and_commits_by_itself() -> None:
    node = Lone(voters=[0])
    node.raft.campaign()
    node.drive()
    assert node.role is Role.LEADER
    node.propose("a", "b")
    assert node.commit == 3
    assert node.sent() == []


def test_sole_voter_commits_entries_that_its_driver_has_written() -> None:
    node = Lone(voters=[0])
    node.raft.campaign()
    node.drive()
    assert node.raft.may_commit_as_sole_voter
    index = LogIndex(node.raft.last_index + 1)
    entry = Entry(index, node.raft.leadership.term, EntryKind.DATA, 1, "a")
    for image in (node.disk.written, node.disk.durable):
        image.entries.append(entry)
    node.raft.commit_as_sole_voter(index)
    node.raft.validate()
    status = node.raft.status()
    assert status.commit_index == status.applied_index == status.durable_index == index
    assert node.raft.ready() is None
    assert node.propose("b") == index + 1
    assert node.commit == index + 1


def test_only_an_idle_sole_voter_may_commit_as_sole_voter() -> None:
    follower, leader = Lone(voters=[0]), Lone(voters=[0])
    leader.raft.campaign()
    leader.drive()
    assert not follower.raft.may_commit_as_sole_voter
    leader.is_slow = True
    leader.propose("not synced yet")
    assert not leader.raft.may_commit_as_sole_voter
    leader.sync()
    assert leader.raft.may_commit_as_sole_voter
    leader.raft.propose_membership(MembershipChange(ChangeKind.ADD_LEARNER, PEER))
    assert not leader.raft.may_commit_as_sole_voter
    leader.drive()
    leader.sync()
    assert not leader.raft.may_commit_as_sole_voter


def test_advance_confirms_and_applies_for_a_driver_that_waits() -> None:
    disk = Disk(ids(0))
    raft = Raft(ME, RaftConfig(), disk, lambda bound: 0, disk.restart())
    raft.campaign()
    for _ in range(4):
        ready = raft.ready()
        if ready is not None:
            disk.write(ready)
            disk.sync()
            raft.advance(ready)
    assert raft.status().applied_index == 1
    assert raft.ready() is None


# Refusals


def test_follower_refuses_and_names_the_leader() -> None:
    group = Group()
    group.elect(0)
    raft = group[1].raft
    for call, argument in (
        (raft.propose, [Proposal("a", 1)]),
        (raft.read_index, "r"),
        (raft.transfer_leadership, OTHER),
        (raft.propose_membership, MembershipChange(ChangeKind.REMOVE, OTHER)),
    ):
        refused = refusal_of(call, argument)
        assert (refused.reason, refused.leader_id) == (Refusal.NOT_LEADER, ME)


def test_leader_without_a_majority_accepts_a_bounded_amount() -> None:
    group = Group(uncommitted_bytes_max=100)
    leader = group.elect(0)
    group.down = {1, 2}
    leader.propose(*"abcdefgh")
    refused = refusal_of(leader.propose, "i", "j", "k")
    assert refused.reason is Refusal.OVERLOADED
    group.down = set()
    group.heartbeat(0)
    assert leader.propose("i") == 10


def test_large_proposal_passes_when_nothing_else_waits() -> None:
    leader = Group(uncommitted_bytes_max=100).elect(0)
    leader.raft.propose([Proposal("large", 5000)])


def test_leader_bounds_the_number_of_waiting_reads() -> None:
    group = Group(reads_max=2)
    leader = group.elect(0)
    group.down = {1, 2}
    leader.raft.read_index("a")
    leader.raft.read_index("b")
    assert refusal_of(leader.raft.read_index, "c").reason is Refusal.OVERLOADED


def test_change_waits_for_the_previous_change() -> None:
    group = Group()
    leader = group.elect(0)
    leader.raft.propose_membership(MembershipChange(ChangeKind.ADD_LEARNER, MemberId(7)))
    change = MembershipChange(ChangeKind.REMOVE, OTHER)
    assert refusal_of(leader.raft.propose_membership, change).reason is Refusal.CHANGE_PENDING


def test_learner_that_does_not_answer_is_not_promoted() -> None:
    group = Group(promotion_lag_entries_max=100)
    leader = group.elect(0)
    leader.raft.propose_membership(MembershipChange(ChangeKind.DEMOTE, OTHER))
    group.settle()
    group.down = {2}
    for _ in range(12):
        group.heartbeat(0)
    change = MembershipChange(ChangeKind.PROMOTE, OTHER)
    assert refusal_of(leader.raft.propose_membership, change).reason is Refusal.NOT_CAUGHT_UP


def test_learner_that_never_answered_is_not_promoted_however_short_the_log_is() -> None:
    group = Group(promotion_lag_entries_max=100)
    leader = group.elect(0)
    group.down = {7}
    leader.raft.propose_membership(MembershipChange(ChangeKind.ADD_LEARNER, MemberId(7)))
    group.settle()
    change = MembershipChange(ChangeKind.PROMOTE, MemberId(7))
    assert refusal_of(leader.raft.propose_membership, change).reason is Refusal.NOT_CAUGHT_UP


# Time


def test_entries_sent_to_all_members_postpone_the_heartbeat() -> None:
    group = Group(heartbeat_ticks=3, election_timeout_ticks=100)
    leader = group.elect(0)
    group.heartbeat(0)
    for payload in "abcdefgh":
        leader.tick(2)
        leader.propose(payload)
        assert leader.sent(Heartbeat) == []
    leader.tick(3)
    assert [beat.to for beat in leader.sent(Heartbeat)] == [PEER, OTHER]


def test_follower_that_is_sent_no_entries_still_hears_the_leader() -> None:
    group = Group(heartbeat_ticks=3, inflight_messages_max=1)
    leader = group.elect(0)
    leader.propose("a")
    leader.step(AppendResponse(PEER, ME, leader.term, LogIndex(2)))
    leader.sent()
    leader.tick(2)
    leader.propose("b")
    assert {message.to for message in leader.sent(Append)} == {PEER}
    leader.tick()
    assert [beat.to for beat in leader.sent(Heartbeat)] == [PEER, OTHER]


def test_leader_whose_entries_could_not_be_loaded_still_sends_heartbeats() -> None:
    leader = Group(heartbeat_ticks=3).elect(0)
    leader.propose("a")
    leader.raft.append_was_not_sent()
    leader.sent()
    leader.propose("b")
    leader.raft.append_was_not_sent()
    assert leader.raft.tick()
    assert [beat.to for beat in leader.sent(Heartbeat)] == [PEER, OTHER]


def test_tick_returns_whether_it_caused_anything() -> None:
    group = Group(heartbeat_ticks=3, election_timeout_ticks=10)
    leader = group.elect(0)
    group.heartbeat(0)
    assert [leader.raft.tick() for _ in range(3)] == [False, False, True]
    follower = group[1]
    ticks = [follower.raft.tick() for _ in range(10)]
    assert ticks == [False] * 9 + [True]
    follower.drive()
    assert follower.role is Role.PRE_CANDIDATE


# Ready


def test_each_effect_appears_once() -> None:
    node = Lone(term=1)
    node.raft.step(append(1, (0, 0), log_of(1), commit=1))
    first = node.raft.ready()
    assert first is not None
    assert first.token is not None
    assert len(first.entries) == 1
    assert node.raft.ready() is None
    node.raft.synced(first.token)
    second = node.raft.ready()
    assert second is not None
    assert (second.token, second.entries) == (None, ())
    assert second.committed == (1, 1)
    assert isinstance(second.messages[0], AppendResponse)
    assert node.raft.ready() is None


def test_commit_index_runs_ahead_of_what_may_be_applied() -> None:
    node = Lone(term=1)
    node.is_slow = True
    node.step(append(1, (0, 0), log_of(1), commit=1))
    ready = node.readies[-1]
    assert (ready.commit_index, ready.committed) == (1, None)


def test_applied_before_committed_stops_the_node() -> None:
    node = Lone(term=1, log=log_of(1))
    with pytest.raises(InvariantBroken, match="before it was committed"):
        node.raft.applied(LogIndex(1))


def test_unknown_token_stops_the_node() -> None:
    with pytest.raises(InvariantBroken, match="never issued"):
        Lone().raft.synced(SyncToken(3))


def test_message_for_another_node_is_ignored() -> None:
    node = Lone(term=1)
    node.raft.step(Heartbeat(PEER, OTHER, Term(9), LogIndex(0), Round(1), may_quiesce=False))
    assert node.term == 1


# Restarts


def test_restart_continues_from_the_disk() -> None:
    node = Lone(term=3, vote=2, log=log_of(1, 2, 3), commit=2)
    status = node.raft.status()
    assert (status.leadership.term, status.vote) == (3, 2)
    assert (status.commit_index, status.last_index, status.durable_index) == (2, 3, 3)
    node.drive()
    assert [ready.committed for ready in node.readies] == [(1, 2)]


def test_commit_hint_beyond_the_log_is_cut_to_it() -> None:
    """The entries were committed on other disks, and lost here before they were synced."""
    node = Lone(term=1, log=log_of(1), commit=9)
    assert node.commit == 1


def test_log_that_reached_the_disk_without_its_term_restores_the_term() -> None:
    node = Lone(term=1, vote=1, log=log_of(1, 4))
    assert (node.term, node.raft.status().vote) == (4, None)
    node.drive()
    assert node.disk.durable.hard_state == (4, None)


def test_restarted_follower_of_an_idle_group_learns_the_commit_from_heartbeats() -> None:
    group = Group()
    group.elect(0)
    group[1].start(commit=0)
    group.heartbeat(0)
    group.heartbeat(0)
    assert group[1].commit == 1


def test_newest_membership_of_the_log_applies_after_a_restart() -> None:
    disk = Disk(ids(0, 1, 2))
    memberships = [
        MembershipAt(LogIndex(0), Membership(ids(0, 1, 2))),
        MembershipAt(LogIndex(1), Membership(ids(0, 1))),
    ]
    disk.written.entries = log_of(1)
    raft = Raft(ME, RaftConfig(), disk, lambda bound: 0, Restart(memberships=memberships))
    assert raft.status().membership == Membership(ids(0, 1))
    assert raft.membership_at(LogIndex(0)) == Membership(ids(0, 1, 2))


def test_fresh_node_outside_every_membership_waits_for_a_leader() -> None:
    disk = Disk(())
    raft = Raft(ME, RaftConfig(), disk, lambda bound: 0)
    for _ in range(50):
        raft.tick()
    assert raft.leadership.role is Role.FOLLOWER
    raft.campaign()
    assert raft.leadership.role is Role.FOLLOWER


# Reports of the driver


def test_follower_whose_leader_is_unreachable_campaigns_soon() -> None:
    group = Group(election_timeout_ticks=20)
    group.elect(0)
    group[1].raft.peer_unreachable(OTHER)
    group[1].tick(3)
    assert group[1].role is Role.FOLLOWER
    group[1].raft.peer_unreachable(ME)
    group[1].tick(1)
    assert group[1].role is Role.PRE_CANDIDATE


def test_report_of_the_driver_does_not_break_a_lease() -> None:
    """The leader may be alive, unreachable only from this node, and rely on its not campaigning."""
    group = Group(election_timeout_ticks=20, lease_reads=True)
    group.elect(0)
    group[1].raft.peer_unreachable(ME)
    group[1].tick(19)
    assert group[1].role is Role.FOLLOWER
    group[1].raft.campaign()
    assert group[1].role is Role.FOLLOWER


def test_restarted_node_grants_no_vote_for_a_while_if_leases_are_in_use() -> None:
    request = RequestVote(PEER, ME, Term(5), LogIndex(9), Term(4), is_handover=False)
    for lease_reads, silent_ticks in ((True, 10), (False, 0)):
        node = Lone(term=3, lease_reads=lease_reads)
        for _ in range(silent_ticks):
            node.step(request)
            assert node.sent() == []
            node.tick()
        node.step(request)
        assert node.term == 5


def test_node_that_was_never_a_member_may_vote_at_once() -> None:
    node = Lone(lease_reads=True)
    node.raft.campaign()
    node.drive()
    assert node.role is Role.PRE_CANDIDATE


def test_peer_that_was_unreachable_gets_entries_again_when_it_answers() -> None:
    group = Group()
    leader = group.elect(0)
    leader.raft.peer_unreachable(OTHER)
    leader.propose("a")
    assert [message.to for message in leader.sent(Append)] == [PEER]
    group.heartbeat(0)
    assert leader.raft.status().peers[OTHER].match_index == 2


def test_snapshot_that_failed_is_sent_again_after_the_next_answer() -> None:
    group = Group()
    leader = group.elect(0)
    group.down = {2}
    leader.propose("a", "b")
    group.settle()
    snapshot = Snapshot(LogIndex(2), Term(1), Membership(ids(0, 1, 2)), "state")
    leader.disk.compact(snapshot)
    leader.step(answer(1))
    leader.raft.peer_unreachable(OTHER)
    leader.step(answer(2))
    assert len(leader.sent(InstallSnapshot)) == 1
    leader.raft.snapshot_failed(OTHER)
    assert leader.sent(InstallSnapshot) == []
    leader.step(answer(3))
    assert len(leader.sent(InstallSnapshot)) == 1


def test_snapshot_without_any_answer_is_sent_again() -> None:
    group = Group(snapshot_resend_ticks=5, election_timeout_ticks=50)
    leader = group.elect(0)
    group.down = {2}
    leader.propose("a", "b")
    group.settle()
    leader.disk.compact(Snapshot(LogIndex(2), Term(1), Membership(ids(0, 1, 2)), "state"))
    leader.raft.peer_unreachable(OTHER)
    leader.step(answer(0))
    assert len(leader.sent(InstallSnapshot)) == 1
    leader.tick(4)
    assert leader.sent(InstallSnapshot) == []
    leader.tick(1)
    assert len(leader.sent(InstallSnapshot)) == 1


def answer(round_: int) -> HeartbeatResponse:
    return HeartbeatResponse(OTHER, ME, Term(1), Round(round_), LogIndex(1), LogIndex(1))


def test_failed_disk_silences_a_follower_for_good() -> None:
    node = Lone(term=1)
    node.is_slow = True
    node.step(append(1, (0, 0), log_of(1)))
    node.raft.storage_failed()
    node.sync()
    node.step(append(1, (1, 1), [data(2, 1)]))
    node.tick(50)
    assert node.sent() == []
    assert node.role is Role.FOLLOWER


def test_last_ready_of_a_leader_with_a_failed_disk_has_no_write() -> None:
    group = Group()
    leader = group.elect(0)
    leader.raft.propose([Proposal("a", 1)])
    leader.raft.storage_failed()
    ready = leader.raft.ready()
    assert ready is not None
    assert (ready.token, ready.entries) == (None, ())
    assert any(isinstance(message, TimeoutNow) for message in ready.messages)
    assert ready.leadership is not None
    assert ready.leadership.role is Role.FOLLOWER
    assert leader.raft.ready() is None


# Introspection


def test_status_of_a_leader_lists_members_in_sync() -> None:
    group = Group()
    leader = group.elect(0)
    group.down = {2}
    leader.propose("a", "b", "c")
    group.settle()
    status = leader.raft.status()
    assert (status.majority_index, status.commit_index) == (4, 4)
    assert status.peers[PEER].match_index == 4
    assert status.in_sync(lag_entries_max=0) == [0, 1]
    assert status.in_sync(lag_entries_max=3) == [0, 1, 2]
    for _ in range(12):
        group.heartbeat(0)
    assert leader.raft.status().in_sync(lag_entries_max=3) == [0, 1]


def test_majority_index_ignores_the_term() -> None:
    """At the start of a term a majority may hold entries that are not committed yet."""
    node = Lone(term=1, log=log_of(1, 1))
    node.raft.campaign()
    node.drive()
    node.step(PreVoteResponse(PEER, ME, Term(1), granted=True))
    node.step(VoteResponse(PEER, ME, Term(2), granted=True))
    node.step(AppendResponse(PEER, ME, Term(2), LogIndex(2)))
    status = node.raft.status()
    assert (status.majority_index, status.commit_index) == (2, 0)


def test_commit_is_broadcast_at_once_if_configured() -> None:
    group = Group(commit_broadcast=True)
    leader = group.elect(0)
    leader.propose("a")
    group.settle()
    assert [group[node].commit for node in range(3)] == [2, 2, 2]


# Quiescence


def test_quiesced_group_needs_no_ticks_and_keeps_its_leader() -> None:
    group = Group(quiesce_after_ticks=4)
    group.elect(0)
    for _ in range(6):
        for node in group.nodes:
            node.tick()
        group.settle()
    assert [node.raft.is_quiesced for node in group.nodes] == [True, True, True]
    group.seen.clear()
    for _ in range(100):
        for node in group.nodes:
            node.tick()
        group.settle()
    assert group.seen == []
    assert group[0].role is Role.LEADER


def test_group_does_not_quiesce_while_a_reachable_member_lags() -> None:
    group = Group(quiesce_after_ticks=4)
    leader = group.elect(0)
    group.down = {2}
    leader.propose("a")
    group.settle()
    for _ in range(30):
        leader.tick()
        group.settle()
    assert not leader.raft.is_quiesced
    leader.raft.peer_unreachable(OTHER)
    for _ in range(5):
        leader.tick()
        group.settle()
    assert leader.raft.is_quiesced


def test_all_members_of_an_idle_group_are_always_in_sync() -> None:
    """At the start of an activity window no member has answered in it yet."""
    group = Group(quiesce_after_ticks=30)
    leader = group.elect(0)
    for _ in range(40):
        for node in group.nodes:
            node.tick()
        assert leader.raft.status().in_sync(0) == [ME, PEER, OTHER]
        group.settle()
    assert leader.raft.is_quiesced


def test_member_that_comes_back_as_the_group_quiesces_must_answer_first() -> None:
    group = Group(quiesce_after_ticks=30, heartbeat_ticks=5)
    leader = group.elect(0)
    leader.raft.peer_unreachable(OTHER)
    group.down = {2}
    for _ in range(29):
        leader.tick()
        group.settle()
    assert not leader.raft.is_quiesced
    assert leader.raft.status().in_sync(0) == [ME, PEER]
    group.down = set()
    leader.raft.peer_reachable(OTHER)
    for _ in range(35):
        leader.tick()
        group.settle()
    assert leader.raft.is_quiesced
    assert leader.raft.status().in_sync(0) == [ME, PEER, OTHER]


def test_follower_that_lags_does_not_quiesce() -> None:
    node = Lone(term=1, log=log_of(1))
    sleep = Heartbeat(PEER, ME, Term(1), LogIndex(2), Round(1), may_quiesce=True)
    node.step(sleep)
    assert not node.raft.is_quiesced
    assert len(node.sent(HeartbeatResponse)) == 1


def test_late_quiescing_heartbeat_does_not_quiesce_newer_work() -> None:
    """The heartbeat is delayed and overtaken by an entry."""
    node = Lone(term=1)
    sleep = Heartbeat(PEER, ME, Term(1), LogIndex(1), Round(1), may_quiesce=True)
    node.step(append(1, (0, 0), log_of(1, 1), commit=1), sleep)
    assert not node.raft.is_quiesced


def test_lease_is_void_after_quiescence() -> None:
    """No clock ran: rounds confirmed earlier prove nothing now."""
    group = Group(quiesce_after_ticks=4, lease_reads=True)
    leader = group.elect(0)
    group.heartbeat(0)
    assert leader.raft.status().has_lease
    for _ in range(6):
        for node in group.nodes:
            node.tick()
        group.settle()
    assert leader.raft.is_quiesced
    leader.reads()
    leader.raft.read_index("r")
    leader.drive()
    assert leader.reads() == []
    group.settle()
    assert [read.context for read in leader.reads()] == ["r"]
