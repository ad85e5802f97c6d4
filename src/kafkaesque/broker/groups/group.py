"""The state of one classic group, and how DescribeGroups and ListGroups show it.

`rebalance` changes it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from kafkaesque.broker.groups.consumer_protocol import subscribed_topics
from kafkaesque.broker.groups.log_format import GroupKey, GroupValue, MemberValue, encode_group
from kafkaesque.broker.groups.members import Member, Roster
from kafkaesque.broker.groups.transitions import GroupEvent, GroupState, next_state
from kafkaesque.broker.groups.types import (
    CLASSIC_GROUP_TYPE,
    CONSUMER_PROTOCOL_TYPE,
    GroupDescription,
    GroupListing,
    JoinAnswer,
    JoinedMember,
    Protocol,
)
from kafkaesque.model.errors import CorruptMessage, ErrorCode, check
from kafkaesque.model.ids import NO_TIMESTAMP, TimestampMs
from kafkaesque.records.log_fields import LogRecord


@dataclass(slots=True)
class InitialDelay:
    """How much longer a formerly empty group waits for more members."""

    delay_ms: int
    remaining_ms: int
    new_member_added: bool = False


class Group:
    """Invariants: generation_id never decreases; a Stable group has a protocol and members, each
    with its assignment (which may be empty bytes); pending_syncs are members."""

    __slots__ = (
        "generation_id",
        "group_id",
        "initial_delay",
        "pending_syncs",
        "previous_state",
        "protocol_name",
        "protocol_type",
        "roster",
        "state",
        "state_since_ms",
        "subscribed",
    )

    def __init__(self, group_id: str, state_since_ms: TimestampMs | None = None) -> None:
        self.group_id = group_id
        self.roster = Roster()
        self.state = GroupState.EMPTY
        self.previous_state = GroupState.DEAD
        self.state_since_ms = state_since_ms
        """None for a group known only from its offsets, or from a record older than version 2."""
        self.generation_id = 0
        self.protocol_type: str | None = None
        """None for a simple group: offsets without members."""
        self.protocol_name: str | None = None
        self.pending_syncs: set[str] = set()
        """Members of this generation that have not sent SyncGroup yet."""
        self.subscribed: frozenset[str] | None = None
        """None if unknown: not a consumer group, or metadata that cannot be read."""
        self.initial_delay: InitialDelay | None = None

    @classmethod
    def from_record(cls, key: GroupKey, value: GroupValue) -> Group:
        """The group as it was when the record was written: Stable, or Empty without members."""
        since_ms = None if value.state_since_ms == NO_TIMESTAMP else value.state_since_ms
        group = cls(key.group_id, since_ms)
        group.generation_id = value.generation_id
        group.protocol_type = value.protocol_type or None
        group.protocol_name = value.protocol_name
        _check_restorable(key, value)
        for member in value.members:
            timeout_ms = member.rebalance_timeout_ms
            group.roster.add(
                Member(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    session_timeout_ms=member.session_timeout_ms,
                    rebalance_timeout_ms=member.session_timeout_ms
                    if timeout_ms == -1
                    else timeout_ms,
                    protocols=(Protocol(value.protocol_name or "", member.subscription),),
                    assignment=member.assignment,
                )
            )
        if value.members:
            group.state = GroupState.STABLE
            if value.leader_id is not None and value.leader_id in group.roster:
                group.roster.leader_id = value.leader_id
        group.update_subscribed()
        return group

    @property
    def is_consumer_group(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    @property
    def is_initial_rebalance(self) -> bool:
        return (
            self.state is GroupState.PREPARING_REBALANCE and self.previous_state is GroupState.EMPTY
        )

    def move(self, event: GroupEvent, now_ms: TimestampMs) -> None:
        """The only place where a group changes its state."""
        state = next_state(self.state, event)
        self.previous_state, self.state = self.state, state
        self.state_since_ms = now_ms

    def supports(self, protocol_type: str, protocols: tuple[Protocol, ...]) -> bool:
        """Whether a joining member has a protocol in common with all members."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and bool(protocols)
        if self.protocol_type != protocol_type:
            return False
        return self.roster.supports_any([protocol.name for protocol in protocols])

    def begin_generation(self, now_ms: TimestampMs) -> None:
        """Ends the join phase and selects the protocol of the members."""
        self.generation_id += 1
        self.initial_delay = None
        self.pending_syncs.clear()
        if len(self.roster):
            self.protocol_name = self.roster.select_protocol()
            self.move(GroupEvent.JOIN_PHASE_ENDED, now_ms)
        else:
            self.protocol_name = None
            self.move(GroupEvent.LAST_MEMBER_GONE, now_ms)
        self.update_subscribed()

    def update_subscribed(self) -> None:
        """Updates the subscribed topics of all members, for OffsetDelete and expiry."""
        self.subscribed = None
        if not self.is_consumer_group:
            return
        topics: frozenset[str] = frozenset()
        if len(self.roster):
            if self.protocol_name is None:
                return
            for member in self.roster:
                of_member = subscribed_topics(member.metadata(self.protocol_name))
                if of_member is None:
                    return
                topics |= of_member
        self.subscribed = topics

    def subscribes_to(self, topic: str) -> bool:
        """A consumer group whose subscriptions cannot be read counts as subscribed to every topic."""
        if self.subscribed is None:
            return self.is_consumer_group
        return topic in self.subscribed

    def joined_members(self) -> tuple[JoinedMember, ...]:
        """For the leader: all members with their metadata for the selected protocol."""
        name = self.protocol_name
        check(name is not None, "members are listed only once a protocol is selected")
        return tuple(
            JoinedMember(member.member_id, member.group_instance_id, member.metadata(name or ""))
            for member in self.roster
        )

    def join_answer(self, member_id: str) -> JoinAnswer:
        """The JoinGroup answer of the current generation for `member_id`."""
        is_leader = self.roster.leader_id == member_id
        return JoinAnswer(
            generation_id=self.generation_id,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=self.roster.leader_id or "",
            member_id=member_id,
            members=self.joined_members() if is_leader else (),
        )

    def as_record(self) -> LogRecord:
        """The record from which this group is restored: Empty, or Stable with all assignments."""
        name = self.protocol_name
        check(name is not None or not len(self.roster), "members without a protocol")
        value = GroupValue(
            protocol_type=self.protocol_type or "",
            generation_id=self.generation_id,
            protocol_name=name,
            leader_id=self.roster.leader_id,
            state_since_ms=NO_TIMESTAMP if self.state_since_ms is None else self.state_since_ms,
            members=tuple(
                MemberValue(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout_ms=member.rebalance_timeout_ms,
                    session_timeout_ms=member.session_timeout_ms,
                    subscription=member.metadata(name or ""),
                    assignment=member.assignment,
                )
                for member in self.roster
            ),
        )
        return encode_group(GroupKey(self.group_id), value)


def _check_restorable(key: GroupKey, value: GroupValue) -> None:
    """Checks what the format does not guarantee but the rules rely on."""
    if value.members and not (value.protocol_type and value.protocol_name):
        raise CorruptMessage(f"the record of group {key.group_id} has members but no protocol")
    ids = [member.member_id for member in value.members]
    names = [m.group_instance_id for m in value.members if m.group_instance_id is not None]
    if len(set(ids)) < len(ids) or len(set(names)) < len(names):
        raise CorruptMessage(f"the record of group {key.group_id} has a member twice")


def describe(group: Group) -> GroupDescription:
    """Assignments always; metadata and protocol only when Stable, as in Kafka."""
    protocol_name = group.protocol_name if group.state is GroupState.STABLE else None
    return GroupDescription(
        group_id=group.group_id,
        state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_name=protocol_name or "",
        members=tuple(member.described(protocol_name) for member in group.roster),
    )


def describe_unknown(group_id: str, api_version: int) -> GroupDescription:
    """A group that does not exist is Dead; from v6 on it is an error as well (KIP-1043)."""
    is_error = api_version >= 6
    return GroupDescription(
        group_id=group_id,
        error=ErrorCode.GROUP_ID_NOT_FOUND if is_error else ErrorCode.NONE,
        error_message=f"Group {group_id} not found." if is_error else None,
        state=GroupState.DEAD.value,
    )


def list_groups(
    groups: Iterable[Group], states: Collection[str], types: Collection[str]
) -> list[GroupListing]:
    """Filters ignore case; an empty filter matches everything (KIP-518, KIP-848)."""
    wanted_states = {state.strip().lower() for state in states}
    wanted_types = {kind.strip().lower() for kind in types}
    if wanted_types and CLASSIC_GROUP_TYPE.lower() not in wanted_types:
        return []
    return [
        GroupListing(
            group.group_id, group.protocol_type or "", group.state.value, CLASSIC_GROUP_TYPE
        )
        for group in groups
        if not wanted_states or group.state.value.lower() in wanted_states
    ]
