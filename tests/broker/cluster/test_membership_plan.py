"""The steps from the current members of a group to the wanted ones, never without a majority."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkaesque.broker.cluster.rules.membership_plan import (
    CONTROLLER_VOTERS_MAX,
    MemberProgress,
    PlannedGroup,
    Step,
    TransferLeadership,
    controller_members,
    group_of,
    is_reached,
    next_controller_step,
    next_step,
    preferred_leader_step,
)
from kafkaesque.broker.raft.membership import ChangeKind, MembershipChange, changed
from kafkaesque.broker.raft.quorum import majority
from kafkaesque.broker.raft.ready import Leadership, PeerStatus, Status
from kafkaesque.broker.raft.types import LogIndex, Membership, Refusal, Role, Term
from kafkaesque.model.ids import MemberId, NodeId, member_id, node_of

LAG_MAX = 10


def members(*numbers: int) -> tuple[MemberId, ...]:
    return tuple(MemberId(number) for number in numbers)


def second_life(number: int) -> MemberId:
    return member_id(NodeId(number), 1)


def group(
    voters: Iterable[int],
    learners: Iterable[int] = (),
    *,
    leader: int = 1,
    dead: Iterable[int] = (),
    unheard: Iterable[int] = (),
    lags: Mapping[int, int] | None = None,
) -> PlannedGroup:
    membership = Membership(members(*sorted(voters)), members(*sorted(learners)))
    progress = {
        member: MemberProgress(
            is_active=member not in set(dead),
            has_acknowledged=member not in set(unheard),
            lag_entries=(lags or {}).get(member, 0),
        )
        for member in membership.nodes
        if member != leader
    }
    return PlannedGroup(membership, MemberId(leader), progress, LAG_MAX)


def add(member: int) -> Step:
    return MembershipChange(ChangeKind.ADD_LEARNER, MemberId(member))


def promote(member: int) -> Step:
    return MembershipChange(ChangeKind.PROMOTE, MemberId(member))


def demote(member: int) -> Step:
    return MembershipChange(ChangeKind.DEMOTE, MemberId(member))


def remove(member: int) -> Step:
    return MembershipChange(ChangeKind.REMOVE, MemberId(member))


C = second_life(3)

CASES: dict[str, tuple[PlannedGroup, tuple[MemberId, ...], Step | None]] = {
    "nothing to do": (group([1, 2, 3]), members(3, 2, 1), None),
    "newcomer is a learner first": (group([1, 2, 3]), members(1, 2, 4), add(4)),
    "all newcomers learn side by side": (
        group([1, 2, 3], [4], lags={4: 99}),
        members(4, 5, 6),
        add(5),
    ),
    "learner that lags is waited for": (
        group([1, 2, 3], [4], lags={4: LAG_MAX + 1}),
        members(1, 2, 4),
        None,
    ),
    "learner that is silent is waited for": (
        group([1, 2, 3], [4], dead=[4]),
        members(1, 2, 4),
        None,
    ),
    "learner that never acknowledged anything does not vote, however short the log": (
        group([1], [4], unheard=[4]),
        members(1, 4),
        None,
    ),
    "learner that has caught up votes": (
        group([1, 2, 3], [4], lags={4: LAG_MAX}),
        members(1, 2, 4),
        promote(4),
    ),
    "old voter goes when all new ones vote": (group([1, 2, 3, 4]), members(1, 2, 4), remove(3)),
    "no old voter goes before all new ones vote": (
        group([1, 2, 3, 4], [5], lags={5: 99}),
        members(1, 4, 5),
        None,
    ),
    "dead one goes before live ones": (
        group([1, 2, 3, 4, 5], dead=[5]),
        members(1, 2, 3),
        remove(5),
    ),
    "voter that the majority needs stays": (
        group([1, 2, 3], dead=[3]),
        members(1, 3),
        None,
    ),
    "leader hands over before it goes": (
        group([1, 2, 3, 4], leader=3),
        members(4, 1, 2),
        TransferLeadership(MemberId(4)),
    ),
    "leader hands over to one that can lead at once": (
        group([1, 2, 3, 4], leader=3, dead=[4], lags={1: 99}),
        members(4, 1, 2),
        TransferLeadership(MemberId(2)),
    ),
    "leader goes last": (group([1, 2, 3, 4, 5], leader=4), members(1, 2, 3), remove(5)),
    "leader stays while nobody could take over": (
        group([1, 4], leader=4, lags={1: 99}),
        members(1),
        None,
    ),
    "leader stays while the others have no majority": (
        group([1, 2, 4], leader=4, dead=[1]),
        members(1, 2),
        None,
    ),
    "factor grows from one": (group([1]), members(1, 2, 3), add(2)),
    "learner nobody wants any more goes at once": (
        group([1, 2, 3], [4], dead=[4]),
        members(1, 2, 3),
        remove(4),
    ),
    "former life goes before its successor comes": (
        group([1, 2, 3], dead=[3]),
        (*members(1, 2), C),
        remove(3),
    ),
    "former life goes though it seems to answer": (
        group([1, 2, 3]),
        (*members(1, 2), C),
        remove(3),
    ),
    "successor of a former life learns first": (group([1, 2]), (*members(1, 2), C), add(C)),
    "former learner goes too": (
        group([1, 2], [3], dead=[3]),
        (*members(1, 2), C),
        remove(3),
    ),
}


@pytest.mark.parametrize(("start", "wanted", "step"), CASES.values(), ids=list(CASES))
def test_next_step(start: PlannedGroup, wanted: tuple[MemberId, ...], step: Step | None) -> None:
    assert next_step(start, wanted) == step


def test_reached_means_these_voters_and_no_learner() -> None:
    assert is_reached(Membership(members(1, 2)), members(2, 1))
    assert not is_reached(Membership(members(1, 2), members(3)), members(1, 2))
    assert not is_reached(Membership(members(1, 2, 3)), members(1, 2))


# -- the controller's group -------------------------------------------------------------------------


def test_of_seven_brokers_five_vote_and_two_follow() -> None:
    start = group([1, 2, 3, 4, 5], [6])
    assert next_controller_step(start, members(1, 2, 3, 4, 5, 6, 7)) == add(7)
    assert next_controller_step(group([1, 2, 3, 4, 5], [6, 7]), members(*range(1, 8))) is None


def test_new_broker_votes_as_long_as_there_is_a_seat() -> None:
    assert next_controller_step(group([1, 2], [3]), members(1, 2, 3)) == promote(3)


def test_voter_keeps_its_seat_while_it_is_down_and_loses_it_when_unregistered() -> None:
    start = group([1, 2, 3, 4, 5], [6], dead=[5])
    assert next_controller_step(start, members(1, 2, 3, 4, 5, 6)) is None
    assert next_controller_step(start, members(1, 2, 3, 4, 6)) == promote(6)
    after = group([1, 2, 3, 4, 5, 6], dead=[5])
    assert next_controller_step(after, members(1, 2, 3, 4, 6)) == remove(5)


def test_ghost_that_registered_does_not_keep_an_unregistered_controller_voter_in_place() -> None:
    ghost_learns = group([1, 2, 3], [4], dead=[2], unheard=[4])
    assert next_controller_step(ghost_learns, members(1, 3, 4)) == remove(2)


def test_free_vote_goes_to_the_learner_that_has_caught_up() -> None:
    start = group([1, 2, 3, 4], [5, 6, 7], dead=[5], lags={6: 99})
    voters, learners = controller_members(start, members(*range(1, 8)))
    assert (voters, learners) == (list(members(1, 2, 3, 4, 7)), list(members(6, 5)))


def test_voter_beyond_the_fifth_is_demoted_but_never_the_leader() -> None:
    start = group([1, 2, 3, 4, 5, 6], leader=6)
    assert next_controller_step(start, members(*range(1, 7))) == demote(5)


def test_unregistered_follower_is_removed() -> None:
    assert next_controller_step(group([1, 2, 3], [4], dead=[4]), members(1, 2, 3)) == remove(4)


# -- preferred leaders ------------------------------------------------------------------------------


def test_leadership_goes_back_to_the_preferred_leader_that_is_ready() -> None:
    two = MemberId(2)
    assert preferred_leader_step(group([1, 2, 3]), two) == TransferLeadership(two)
    assert preferred_leader_step(group([1, 2, 3], leader=2), two) is None
    assert preferred_leader_step(group([1, 2, 3], lags={2: 99}), two) is None
    assert preferred_leader_step(group([1, 2, 3], dead=[2]), two) is None
    assert preferred_leader_step(group([1, 3], [2]), two) is None


def test_group_is_built_from_the_raft_status() -> None:
    one, two = members(1, 2)
    status = Status(
        node_id=one,
        leadership=Leadership(Role.LEADER, Term(3), one, is_confirmed=True),
        vote=one,
        membership=Membership((one,), (two,)),
        commit_index=LogIndex(50),
        applied_index=LogIndex(50),
        durable_index=LogIndex(50),
        last_index=LogIndex(50),
        majority_index=LogIndex(50),
        is_quiesced=False,
        has_lease=False,
        transfer_target=None,
        peers={
            two: PeerStatus(LogIndex(45), LogIndex(46), "probe", is_learner=True, is_active=True)
        },
    )
    found = group_of(status, LAG_MAX)
    assert found.progress == {two: MemberProgress(True, True, 5)}
    assert next_step(found, [one, two]) == promote(2)


# -- random walks -----------------------------------------------------------------------------------


class World:
    """A group whose members fail, return and catch up at random; every step is applied."""

    def __init__(self, chance: Random, voters: Iterable[MemberId]) -> None:
        self.chance = chance
        self.membership = Membership(tuple(sorted(voters)))
        self.leader = self.membership.voters[0]
        self.dead: set[MemberId] = set()
        self.lags: dict[MemberId, int] = {}

    def is_live(self, member: MemberId) -> bool:
        return member not in self.dead

    def has_majority(self) -> bool:
        voters = self.membership.voters
        return sum(map(self.is_live, voters)) >= majority(len(voters))

    def disturb(self) -> None:
        """Kills or revives a random member, keeping a majority; then makes a live member the leader."""
        member = self.chance.choice(self.membership.nodes)
        if member in self.dead:
            self.dead.discard(member)
        else:
            self.dead.add(member)
            if not self.has_majority():
                self.dead.discard(member)
        if not self.is_live(self.leader) or self.chance.random() < 0.1:
            self.leader = self.chance.choice([v for v in self.membership.voters if self.is_live(v)])
        for other in self.membership.nodes:
            self.lags[other] = self.chance.choice([0, LAG_MAX, LAG_MAX + 1, 1000])

    def wipe(self, node: NodeId) -> None:
        """The node's disk is lost: its member never returns."""
        doomed = {member for member in self.membership.nodes if node_of(member) == node}
        before = set(self.dead)
        self.dead |= doomed
        if not self.has_majority():
            self.dead = before
            raise ValueError("a majority of disks must survive")
        if self.leader in doomed:
            self.leader = next(v for v in self.membership.voters if self.is_live(v))

    def heal(self, gone: Iterable[MemberId]) -> None:
        self.dead &= set(gone)
        self.lags.clear()

    def seen(self) -> PlannedGroup:
        return group(
            self.membership.voters,
            self.membership.learners,
            leader=self.leader,
            dead=self.dead,
            lags=self.lags,
        )

    def take(self, step: Step | None) -> None:
        if step is None:
            return
        if isinstance(step, TransferLeadership):
            assert step.to in self.membership.voters
            assert self.is_live(step.to)
            self.leader = step.to
            return
        assert step != MembershipChange(ChangeKind.REMOVE, self.leader), "the leader goes last"
        assert step != MembershipChange(ChangeKind.DEMOTE, self.leader)
        after = changed(self.membership, step)
        assert not isinstance(after, Refusal), (self.membership, step)
        self.membership = after
        assert self.has_majority(), (step, self.membership, self.dead)


NODES = st.lists(st.integers(1, 9), min_size=1, max_size=5, unique=True)


@settings(deadline=None, max_examples=150)
@given(NODES, st.lists(NODES, min_size=1, max_size=3), st.randoms(use_true_random=False))
def test_any_group_gets_to_any_members_through_any_trouble(
    first: list[int], targets: list[list[int]], chance: Random
) -> None:
    world = World(chance, members(*first))
    for target in targets:
        for _ in range(15):
            world.disturb()
            world.take(next_step(world.seen(), members(*target)))
    world.heal(())
    for _ in range(40):
        step = next_step(world.seen(), members(*targets[-1]))
        world.take(step)
        if step is None:
            break
    assert is_reached(world.membership, members(*targets[-1]))
    assert world.leader in members(*targets[-1])


@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.integers(1, 9), min_size=3, max_size=5, unique=True),
    st.randoms(use_true_random=False),
)
def test_wiped_nodes_are_replaced_by_their_next_generations(
    nodes: list[int], chance: Random
) -> None:
    world = World(chance, members(*nodes))
    lives = dict.fromkeys(nodes, 0)
    gone: set[MemberId] = set()
    for _ in range(10):
        wiped = chance.choice(nodes)
        try:
            world.wipe(NodeId(wiped))
        except ValueError:
            continue
        gone |= {member_id(NodeId(wiped), life) for life in range(lives[wiped] + 1)}
        lives[wiped] += 1
        wanted = [member_id(NodeId(node), life) for node, life in lives.items()]
        for _ in range(chance.randrange(8)):
            world.take(next_step(world.seen(), wanted))
    wanted = [member_id(NodeId(node), life) for node, life in lives.items()]
    world.heal(gone)
    for _ in range(40):
        world.take(next_step(world.seen(), wanted))
    assert is_reached(world.membership, wanted)


@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.sets(st.integers(1, 9), min_size=1), min_size=1, max_size=4),
    st.randoms(use_true_random=False),
)
def test_controllers_group_gets_to_at_most_five_voters_of_all_registered(
    stages: list[set[int]], chance: Random
) -> None:
    world = World(chance, members(1))
    for stage in stages:
        for _ in range(12):
            world.disturb()
            world.take(next_controller_step(world.seen(), members(*sorted(stage))))
    registered = members(*sorted(stages[-1]))
    world.heal(())
    for _ in range(60):
        world.take(next_controller_step(world.seen(), registered))
    assert set(world.membership.nodes) == set(registered)
    assert len(world.membership.voters) == min(CONTROLLER_VOTERS_MAX, len(registered))
