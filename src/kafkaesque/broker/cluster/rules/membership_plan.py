"""The next single step from the current members of a Raft group to the wanted ones.

A group's leader calls this repeatedly and proposes the result. Each step depends on the current
state only, so a change of leader half-way loses nothing.

The steps, in order of preference:

1.  remove members whose disk is gone, and unwanted learners: this costs no live majority
2.  promote a wanted learner that has caught up
3.  add a wanted member as a learner
4.  only when all wanted voters vote: demote or remove another voter, a dead one first
5.  transfer leadership if the leader itself is to be removed; its successor removes it

Steps 1 to 3 never cost a majority of live voters: an added voter is live, a removed voter is dead.
Step 4 requires that the remaining voters have a live majority.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from kafkaesque.broker.raft.membership import ChangeKind, MembershipChange
from kafkaesque.broker.raft.quorum import majority
from kafkaesque.broker.raft.ready import Status
from kafkaesque.broker.raft.types import NO_INDEX, Membership
from kafkaesque.model.ids import MemberId, generation_of, node_of

CONTROLLER_VOTERS_MAX: Final = 5
"""In a larger cluster the other brokers are learners. Five voters survive two failures; more would
only make every commit wait for more disks."""


class MemberProgress(NamedTuple):
    """A member other than the leader, as the leader sees it."""

    is_active: bool
    has_acknowledged: bool
    """Any entry, to this leader. Otherwise it may not even exist."""
    lag_entries: int


class TransferLeadership(NamedTuple):
    to: MemberId


Step = MembershipChange | TransferLeadership


@dataclass(frozen=True, slots=True)
class PlannedGroup:
    """A group as its leader sees it."""

    membership: Membership
    leader: MemberId
    progress: Mapping[MemberId, MemberProgress]
    lag_entries_max: int
    """`RaftConfig.promotion_lag_entries_max`: a member that lags by no more has caught up."""

    def is_live(self, member: MemberId) -> bool:
        found = self.progress.get(member)
        return member == self.leader or (found is not None and found.is_active)

    def may_vote(self, member: MemberId) -> bool:
        """Whether it votes already or has acknowledged entries. Otherwise it may not even exist."""
        found = self.progress.get(member)
        return member in self.membership.voters or (found is not None and found.has_acknowledged)

    def has_caught_up(self, member: MemberId) -> bool:
        if member == self.leader:
            return True
        found = self.progress.get(member)
        return (
            found is not None
            and found.is_active
            and found.has_acknowledged
            and found.lag_entries <= self.lag_entries_max
        )


def group_of(status: Status, lag_entries_max: int) -> PlannedGroup:
    """Converts Raft's status of a group that this node leads."""
    progress = {
        member: MemberProgress(
            peer.is_active, peer.match_index > NO_INDEX, status.last_index - peer.match_index
        )
        for member, peer in status.peers.items()
    }
    return PlannedGroup(status.membership, status.node_id, progress, lag_entries_max)


def next_step(group: PlannedGroup, voters: Sequence[MemberId]) -> Step | None:
    """The next step towards exactly these `voters`, the preferred leader first. None when that is
    reached, and while there is nothing to do but wait."""
    return _next_step(group, voters, ())


def is_reached(membership: Membership, voters: Iterable[MemberId]) -> bool:
    """Whether a reassignment to `voters` is complete."""
    return not membership.learners and set(membership.voters) == set(voters)


def next_controller_step(group: PlannedGroup, registered: Sequence[MemberId]) -> Step | None:
    """For the controller's group: all `registered` brokers are members, at most five of them vote.

    A voter keeps its vote as long as it is registered: one that is down may be back in a moment, and
    one that is lost for good gets unregistered. A free vote goes to the first that has caught up.
    """
    return _next_step(group, *controller_members(group, registered))


def controller_members(
    group: PlannedGroup, registered: Sequence[MemberId]
) -> tuple[list[MemberId], list[MemberId]]:
    """The wanted voters and learners of the controller's group."""

    def priority(member: MemberId) -> tuple[bool, bool, bool, bool, MemberId]:
        return (
            member not in group.membership.voters,
            member != group.leader,
            not group.has_caught_up(member),
            not group.is_live(member),
            member,
        )

    ordered = sorted(registered, key=priority)
    # One that never answered must not keep an unregistered voter in place.
    voters = [member for member in ordered if group.may_vote(member)][:CONTROLLER_VOTERS_MAX]
    return voters, [member for member in ordered if member not in voters]


def preferred_leader_step(group: PlannedGroup, preferred: MemberId) -> TransferLeadership | None:
    """A transfer to the preferred leader, if another leads and it has caught up."""
    if group.leader == preferred or preferred not in group.membership.voters:
        return None
    return TransferLeadership(preferred) if group.has_caught_up(preferred) else None


def _next_step(
    group: PlannedGroup, voters: Sequence[MemberId], learners: Sequence[MemberId]
) -> Step | None:
    wanted = [*voters, *learners]
    return (
        _remove_at_no_cost(group, wanted)
        or _promote(group, voters)
        or _add(group, wanted)
        or _take_vote(group, voters, learners)
    )


def _remove_at_no_cost(group: PlannedGroup, wanted: Sequence[MemberId]) -> Step | None:
    newest = {node_of(member): generation_of(member) for member in wanted}
    for member in group.membership.nodes:
        if member in wanted or member == group.leader:
            continue
        # The node is back with another disk: this member will never answer again, whatever the
        # leader last saw. The node's new member can wait: it has no vote before it has caught up.
        is_former = generation_of(member) < newest.get(node_of(member), 0)
        if is_former or member in group.membership.learners:
            return MembershipChange(ChangeKind.REMOVE, member)
    return None


def _promote(group: PlannedGroup, voters: Sequence[MemberId]) -> Step | None:
    for member in voters:
        if member in group.membership.learners and group.has_caught_up(member):
            return MembershipChange(ChangeKind.PROMOTE, member)
    return None


def _add(group: PlannedGroup, wanted: Sequence[MemberId]) -> Step | None:
    for member in wanted:
        if member not in group.membership:
            return MembershipChange(ChangeKind.ADD_LEARNER, member)
    return None


def _take_vote(
    group: PlannedGroup, voters: Sequence[MemberId], learners: Sequence[MemberId]
) -> Step | None:
    """Demotes or removes an unwanted voter once all wanted ones vote."""
    current = group.membership.voters
    if not voters or not set(voters) <= set(current):
        return None
    extra = sorted(set(current) - set(voters), key=lambda member: (group.is_live(member), member))
    for member in extra:
        if member == group.leader:
            continue
        rest = [voter for voter in current if voter != member]
        if sum(group.is_live(voter) for voter in rest) >= majority(len(rest)):
            kind = ChangeKind.DEMOTE if member in learners else ChangeKind.REMOVE
            return MembershipChange(kind, member)
    if extra == [group.leader]:
        return _hand_over(group, voters)
    return None


def _hand_over(group: PlannedGroup, voters: Sequence[MemberId]) -> Step | None:
    """A transfer to the first member that has caught up, if the group has a majority without us."""
    live_count = sum(group.is_live(member) for member in voters)
    if live_count < majority(len(voters)):
        return None
    for member in voters:
        if group.has_caught_up(member):
            return TransferLeadership(member)
    return None
