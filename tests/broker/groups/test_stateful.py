"""Groups under random requests, failures and restarts, with what must always hold."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.broker.groups.driver import Driver

from kafkaesque.broker.groups.config import GroupConfig
from kafkaesque.broker.groups.group import Group
from kafkaesque.broker.groups.log_format import GroupKey, decode_group, decode_key
from kafkaesque.broker.groups.step import TimerKey, TimerKind
from kafkaesque.broker.groups.transitions import GroupState
from kafkaesque.broker.groups.types import (
    DeleteGroupsAnswer,
    JoinAnswer,
    LeaveRequest,
    LeavingMember,
    MemberHeartbeat,
    Protocol,
    SyncRequest,
)
from kafkaesque.model.errors import ErrorCode

groups = st.sampled_from(["g", "h"])
instances = st.sampled_from([None, None, None, "i", "j"])
protocols = st.sampled_from(
    [
        (Protocol("range", b"1"), Protocol("sticky", b"2")),
        (Protocol("sticky", b"3"), Protocol("range", b"4")),
        (Protocol("range", b"5"),),
    ]
)
picks = st.integers(0, 7)
versions = st.sampled_from([0, 3, 4, 5, 9])


class Groups(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        config = GroupConfig(initial_rebalance_delay_ms=1000, group_size_max=4)
        self.driver = Driver(config)
        self.generations: dict[str, int] = {}
        self.leaders: dict[tuple[str, int], str] = {}
        self.checked = 0
        self.group_of_token: dict[int, str] = {}

    def group(self, group_id: str) -> Group | None:
        return self.driver.registry._groups.get(group_id)

    def some_member(self, group_id: str, pick: int) -> tuple[str, str | None, int]:
        """A member or promised id of the group with its generation; strangers where it has none."""
        group = self.group(group_id)
        if group is None:
            return "stranger", None, 0
        known = [(member.member_id, member.group_instance_id) for member in group.roster]
        known += [(member_id, None) for member_id in sorted(group.roster.pending_ids)]
        if pick >= len(known):
            return "stranger", None, group.generation_id
        return *known[pick], group.generation_id

    @rule(group_id=groups, instance=instances, protocols=protocols, version=versions)
    def join_new(
        self, group_id: str, instance: str | None, protocols: tuple[Protocol, ...], version: int
    ) -> None:
        token = self.driver.join(
            group_id=group_id, group_instance_id=instance, protocols=protocols, api_version=version
        )
        self.group_of_token[token] = group_id

    @rule(group_id=groups, pick=picks, protocols=protocols)
    def join_again(self, group_id: str, pick: int, protocols: tuple[Protocol, ...]) -> None:
        member_id, instance, _ = self.some_member(group_id, pick)
        token = self.driver.join(
            member_id, group_id=group_id, group_instance_id=instance, protocols=protocols
        )
        self.group_of_token[token] = group_id

    @rule(group_id=groups)
    def all_join_again(self, group_id: str) -> None:
        for pick in range(8):
            self.join_again(group_id, pick, (Protocol("range", b"5"), Protocol("sticky", b"6")))

    @rule(group_id=groups, pick=picks, is_stale=st.booleans())
    def sync(self, group_id: str, pick: int, is_stale: bool) -> None:
        member_id, instance, generation_id = self.some_member(group_id, pick)
        group = self.group(group_id)
        members = [] if group is None else [member.member_id for member in group.roster]
        token = self.driver.new_token()
        request = SyncRequest(
            group_id=group_id,
            generation_id=generation_id - is_stale,
            member_id=member_id,
            group_instance_id=instance,
            assignments=tuple((each, f"{each}@{generation_id}".encode()) for each in members[1:]),
        )
        self.driver.finish(self.driver.registry.sync(request, token, self.driver.now))

    @rule(group_id=groups)
    def all_sync(self, group_id: str) -> None:
        for pick in range(8):
            self.sync(group_id, pick, False)

    @rule(group_id=groups)
    def settle(self, group_id: str) -> None:
        """Without this, random requests seldom agree on a generation."""
        self.all_join_again(group_id)
        self.driver.advance(1)
        self.all_sync(group_id)

    @rule(group_id=groups, pick=picks)
    def heartbeat(self, group_id: str, pick: int) -> None:
        member_id, instance, generation_id = self.some_member(group_id, pick)
        request = MemberHeartbeat(
            group_id=group_id,
            generation_id=generation_id,
            member_id=member_id,
            group_instance_id=instance,
        )
        registry, token = self.driver.registry, self.driver.new_token()
        self.driver.finish(registry.heartbeat(request, token, self.driver.now))

    @rule(group_id=groups, pick=picks)
    def leave(self, group_id: str, pick: int) -> None:
        member_id, instance, _ = self.some_member(group_id, pick)
        leaving = LeavingMember("" if instance and pick % 2 else member_id, instance)
        request = LeaveRequest(group_id=group_id, members=(leaving,))
        registry, token = self.driver.registry, self.driver.new_token()
        self.driver.finish(registry.leave(request, token, self.driver.now))

    @rule(group_id=groups, pick=picks)
    def commit(self, group_id: str, pick: int) -> None:
        member_id, instance, generation_id = self.some_member(group_id, pick)
        self.driver.commit(
            "t",
            pick,
            group_id=group_id,
            member_id=member_id,
            group_instance_id=instance,
            generation_id=generation_id,
        )

    @rule(group_id=groups)
    def delete(self, group_id: str) -> None:
        token = self.driver.new_token()
        registry = self.driver.registry
        self.driver.finish(registry.delete_groups((group_id,), token, self.driver.now))
        answer = self.driver.answers[token]
        assert isinstance(answer, DeleteGroupsAnswer)
        if answer.groups[0].error is ErrorCode.NONE:
            self.forget(group_id)

    @rule()
    def expire(self) -> None:
        before = set(self.driver.registry.group_ids())
        self.driver.finish(self.driver.registry.expire_offsets(self.driver.now.wall_ms))
        for group_id in before - set(self.driver.registry.group_ids()):
            self.forget(group_id)

    @rule(token=st.integers(0, 60))
    def cancel(self, token: int) -> None:
        self.driver.registry.cancel(token)

    @rule(seconds=st.sampled_from([0.5, 1.0, 5.0, 11.0, 61.0, 301.0]))
    def advance(self, seconds: float) -> None:
        self.driver.advance(seconds)
        deadline = self.driver.registry.next_deadline()
        assert deadline is None or deadline > self.driver.seconds

    @rule()
    def restart(self) -> None:
        self.driver.restart()
        self.generations.clear()
        self.leaders.clear()
        self.checked = self.driver.new_token()

    def forget(self, group_id: str) -> None:
        self.generations.pop(group_id, None)
        for key in [key for key in self.leaders if key[0] == group_id]:
            del self.leaders[key]
        self.checked = self.driver.new_token()

    @invariant()
    def generations_never_fall(self) -> None:
        for group_id, group in self.driver.registry._groups.items():
            assert group.generation_id >= self.generations.get(group_id, 0)
            self.generations[group_id] = group.generation_id

    @invariant()
    def a_generation_has_one_leader(self) -> None:
        for token, answer in self.driver.answers.items():
            if token < self.checked or not isinstance(answer, JoinAnswer):
                continue
            if answer.members and not answer.skip_assignment:
                key = (self.group_of_token[token], answer.generation_id)
                assert self.leaders.setdefault(key, answer.member_id) == answer.member_id

    @invariant()
    def the_roster_adds_up(self) -> None:
        for group in self.driver.registry._groups.values():
            roster = group.roster
            assert roster.awaiting_join == sum(member.is_awaiting_join for member in roster)
            assert (roster.leader_id is None) == (len(roster) == 0)
            assert roster.leader_id is None or roster.leader_id in roster
            assert all(member_id in roster for member_id in group.pending_syncs)
            assert not roster.pending_ids & {member.member_id for member in roster}

    @invariant()
    def states_fit_what_is_in_them(self) -> None:
        for group in self.driver.registry._groups.values():
            waiting_joins = group.roster.awaiting_join
            waiting_syncs = sum(member.sync_token is not None for member in group.roster)
            if group.state is GroupState.EMPTY:
                assert not len(group.roster)
            if group.state is not GroupState.PREPARING_REBALANCE:
                assert waiting_joins == 0
                assert group.initial_delay is None
            if group.state is not GroupState.COMPLETING_REBALANCE:
                assert waiting_syncs == 0

    @invariant()
    def nobody_waits_without_a_member(self) -> None:
        registry = self.driver.registry
        held = {
            token
            for group in registry._groups.values()
            for member in group.roster
            for token in (member.join_token, member.sync_token)
        }
        assert registry._waiting <= held

    @invariant()
    def whatever_must_end_has_a_timer(self) -> None:
        registry = self.driver.registry
        for group_id, group in registry._groups.items():
            if group.state is GroupState.PREPARING_REBALANCE:
                assert TimerKey(group_id, TimerKind.JOIN) in registry._timers
            if group.pending_syncs:
                assert TimerKey(group_id, TimerKind.SYNC) in registry._timers
            watched = set(group.roster.pending_ids)
            watched |= {m.member_id for m in group.roster if not m.needs_no_heartbeat}
            for member_id in watched:
                assert TimerKey(group_id, TimerKind.SESSION, member_id) in registry._timers

    @invariant()
    def the_log_restores_groups_at_rest(self) -> None:
        stored: dict[str, bytes | None] = {}
        for key, value in self.driver.log:
            decoded = decode_key(key)
            if isinstance(decoded, GroupKey):
                stored[decoded.group_id] = value
        for group_id, group in self.driver.registry._groups.items():
            if group.state is GroupState.STABLE:
                value = stored[group_id]
                assert value is not None
                restored = decode_group(value)
                assert restored.generation_id == group.generation_id
                assert restored.leader_id == group.roster.leader_id
                assert [(m.member_id, m.assignment) for m in restored.members] == [
                    (m.member_id, m.assignment) for m in group.roster
                ]


Groups.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestGroups = Groups.TestCase
