"""The requests of members: JoinGroup, SyncGroup, Heartbeat and LeaveGroup (KIP-394, KIP-345, KIP-814).

Each is answered now or parked until the rebalance in `rebalance` answers it.
"""

from __future__ import annotations

from collections.abc import Callable

from kafkaesque.broker.groups import rebalance
from kafkaesque.broker.groups.group import Group
from kafkaesque.broker.groups.members import Member
from kafkaesque.broker.groups.step import Step, TimerKind
from kafkaesque.broker.groups.transitions import HEARTBEAT_ANSWERS, GroupState
from kafkaesque.broker.groups.types import (
    NO_MEMBER_ID,
    HeartbeatAnswer,
    JoinAnswer,
    JoinRequest,
    LeaveAnswer,
    LeaveRequest,
    LeavingMember,
    LeftMember,
    MemberHeartbeat,
    Protocol,
    SyncAnswer,
    SyncRequest,
)
from kafkaesque.model.errors import ErrorCode

_MEMBER_ID_PREFIX_LENGTH_MAX = 8000
"""In characters; with the suffix a member id stays below the 32767 bytes of a string in the log."""


def join(
    group: Group, request: JoinRequest, token: int, new_id: Callable[[], str], step: Step
) -> None:
    """Handles a well-formed join; it is answered now or parked."""
    error_member_id = request.member_id
    if not _has_room(group, request.member_id, step):
        error, error_member_id = ErrorCode.GROUP_MAX_SIZE_REACHED, NO_MEMBER_ID
        _refuse(group, request.member_id, step)
    elif not group.supports(request.protocol_type, request.protocols):
        error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    elif request.member_id == NO_MEMBER_ID:
        error = _join_new(group, request, token, new_id, step)
    else:
        error = _join_known(group, request, token, step)
    if error is not ErrorCode.NONE:
        step.answer(token, JoinAnswer(error=error, member_id=error_member_id))


def _has_room(group: Group, member_id: str, step: Step) -> bool:
    """`group.max.size`. During a rebalance the waiting members are counted, so that a group that is
    too large (the setting was lowered) loses those that join last."""
    if group.state is GroupState.EMPTY:
        return True
    member = group.roster.get(member_id)
    if group.state is GroupState.PREPARING_REBALANCE:
        if member is not None and member.is_awaiting_join:
            return True
        return group.roster.awaiting_join < step.config.group_size_max
    return member is not None or len(group.roster) < step.config.group_size_max


def _refuse(group: Group, member_id: str, step: Step) -> None:
    """The group is full: the member is removed, even if it belonged to the last generation."""
    member = group.roster.get(member_id)
    if member is not None:
        rebalance.remove(group, member, step)
    elif member_id in group.roster.pending_ids:
        group.roster.remove(member_id)
        step.cancel_timer(group, TimerKind.SESSION, member_id)
    rebalance.complete_if_all_joined(group, step)


def _join_new(
    group: Group, request: JoinRequest, token: int, new_id: Callable[[], str], step: Step
) -> ErrorCode:
    instance_id = request.group_instance_id
    prefix = request.client_id if instance_id is None else instance_id
    member_id = f"{prefix[:_MEMBER_ID_PREFIX_LENGTH_MAX]}-{new_id()}"
    if instance_id is not None:
        replaced_id = group.roster.static_member_id(instance_id)
        if replaced_id is not None:
            _replace_static(group, request, token, group.roster[replaced_id], member_id, step)
        else:
            _add(group, request, token, member_id, step)
    elif not request.must_know_member_id:
        _add(group, request, token, member_id, step)
    elif len(group.roster.pending_ids) >= step.config.pending_members_max:
        return ErrorCode.GROUP_MAX_SIZE_REACHED
    else:
        group.roster.pending_ids.add(member_id)
        step.start_timer(group, TimerKind.SESSION, request.session_timeout_ms, member_id)
        step.answer(token, JoinAnswer(error=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id))
    return ErrorCode.NONE


def _join_known(group: Group, request: JoinRequest, token: int, step: Step) -> ErrorCode:
    """A join with a member id: the owner of a pending id joins, or a member rejoins."""
    if request.member_id in group.roster.pending_ids:
        if request.group_instance_id is not None:
            # The id was issued to a dynamic member. Kafka fails with an internal error here.
            return ErrorCode.UNKNOWN_SERVER_ERROR
        _add(group, request, token, request.member_id, step)
        return ErrorCode.NONE
    error = group.roster.membership_error(request.member_id, request.group_instance_id)
    if error is not ErrorCode.NONE:
        return error
    _rejoin(group, request, token, group.roster[request.member_id], step)
    return ErrorCode.NONE


def _rejoin(group: Group, request: JoinRequest, token: int, member: Member, step: Step) -> None:
    """A member with unchanged protocols gets the current generation; otherwise a rebalance begins or
    continues.

    A leader in a Stable group always causes a rebalance: it rejoins to reassign partitions.
    """
    is_unchanged = member.protocols == unique_by_name(request.protocols)
    is_leader = group.roster.leader_id == member.member_id
    match group.state:
        case GroupState.COMPLETING_REBALANCE if is_unchanged:
            step.answer(token, group.join_answer(member.member_id))
        case GroupState.STABLE if is_unchanged and not is_leader:
            step.answer(token, group.join_answer(member.member_id))
        case _:
            _update(group, request, token, member, step)
            rebalance.begin_or_complete(group, step)


def _add(group: Group, request: JoinRequest, token: int, member_id: str, step: Step) -> None:
    if not len(group.roster):
        group.protocol_type = request.protocol_type
    if group.initial_delay is not None:
        group.initial_delay.new_member_added = True
    member = Member(
        member_id=member_id,
        group_instance_id=request.group_instance_id,
        client_id=request.client_id,
        client_host=request.client_host,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=_rebalance_timeout_ms(request),
        protocols=unique_by_name(request.protocols),
        is_new=True,
    )
    group.roster.add(member)
    _wait_for_join(group, member, token, step)
    # A new member does not have its id yet and cannot heartbeat; it gets a longer timeout.
    timeout_ms = step.config.new_member_join_timeout_ms
    step.start_timer(group, TimerKind.SESSION, timeout_ms, member_id)
    rebalance.begin_or_complete(group, step)


def _update(group: Group, request: JoinRequest, token: int, member: Member, step: Step) -> None:
    group.roster.set_protocols(member, unique_by_name(request.protocols))
    member.session_timeout_ms = request.session_timeout_ms
    member.rebalance_timeout_ms = _rebalance_timeout_ms(request)
    _wait_for_join(group, member, token, step)


def _wait_for_join(group: Group, member: Member, token: int, step: Step) -> None:
    # Kafka never answers a join that the same member has repeated; we answer it.
    superseded = JoinAnswer(error=ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.member_id)
    rebalance.answer_join(group, member, superseded, step)
    step.park(token)
    group.roster.set_join_token(member, token)


def _replace_static(
    group: Group, request: JoinRequest, token: int, old: Member, new_member_id: str, step: Step
) -> None:
    """A static member rejoins under its name with a new id; the old id is fenced.

    In a Stable group whose protocol stays the same, no rebalance is needed.
    """
    old_leader_id = group.roster.leader_id
    new = _take_over(group, old, new_member_id, step)
    _update(group, request, token, new, step)
    match group.state:
        case GroupState.STABLE if group.roster.select_protocol() == group.protocol_name:
            record = group.as_record()
            if len(record.value or b"") > step.config.group_record_bytes_max:
                rebalance.begin(group, step)
                return
            step.append(record)
            group.update_subscribed()
            answer = _replacement_answer(group, request, new_member_id, old_leader_id)
            rebalance.answer_join(group, new, answer, step)
        case GroupState.STABLE | GroupState.COMPLETING_REBALANCE:
            # In the latter the leader may be assigning partitions to the old id.
            rebalance.begin(group, step)
        case _:
            rebalance.complete_if_all_joined(group, step)


def _take_over(group: Group, old: Member, new_member_id: str, step: Step) -> Member:
    """Replaces the old id with the new one and fences the old one's waiting requests."""
    fenced = JoinAnswer(error=ErrorCode.FENCED_INSTANCE_ID, member_id=old.member_id)
    rebalance.answer_join(group, old, fenced, step)
    rebalance.answer_sync(old, SyncAnswer(error=ErrorCode.FENCED_INSTANCE_ID), step)
    step.cancel_timer(group, TimerKind.SESSION, old.member_id)
    new = Member(
        member_id=new_member_id,
        group_instance_id=old.group_instance_id,
        client_id=old.client_id,
        client_host=old.client_host,
        session_timeout_ms=old.session_timeout_ms,
        rebalance_timeout_ms=old.rebalance_timeout_ms,
        protocols=old.protocols,
        assignment=old.assignment,
    )
    group.roster.replace_static(old, new)
    if old.member_id in group.pending_syncs:
        group.pending_syncs.remove(old.member_id)
        group.pending_syncs.add(new_member_id)
    step.start_session(group, new)
    return new


def _replacement_answer(
    group: Group, request: JoinRequest, member_id: str, old_leader_id: str | None
) -> JoinAnswer:
    """A returning leader must not reassign partitions. From v9 on the answer has a flag for that (KIP-814);
    before, it names the old leader's id, which the member does not recognise as its own."""
    is_leader = group.roster.leader_id == member_id
    can_skip = request.can_skip_assignment
    leader_id = group.roster.leader_id if can_skip else old_leader_id
    return JoinAnswer(
        generation_id=group.generation_id,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=leader_id or NO_MEMBER_ID,
        skip_assignment=is_leader and can_skip,
        member_id=member_id,
        members=group.joined_members() if is_leader and can_skip else (),
    )


def unique_by_name(protocols: tuple[Protocol, ...]) -> tuple[Protocol, ...]:
    """The first of each name, as in Kafka's keyed collection."""
    by_name: dict[str, Protocol] = {}
    for protocol in protocols:
        by_name.setdefault(protocol.name, protocol)
    return tuple(by_name.values())


def _rebalance_timeout_ms(request: JoinRequest) -> int:
    if request.rebalance_timeout_ms == -1:
        return request.session_timeout_ms
    return max(request.rebalance_timeout_ms, 0)


def sync(group: Group, request: SyncRequest, token: int, step: Step) -> None:
    """The leader sends the assignment, the others wait for it; once Stable, all get it at once."""
    error = _sync_error(group, request)
    if error is not ErrorCode.NONE:
        step.answer(token, SyncAnswer(error=error))
        return
    member = group.roster[request.member_id]
    rebalance.synced(group, request.member_id, step)
    if group.state is GroupState.STABLE:
        step.answer(
            token,
            SyncAnswer(
                protocol_type=group.protocol_type,
                protocol_name=group.protocol_name,
                assignment=member.assignment,
            ),
        )
        return
    # As with joins, a repeated sync answers the one before.
    rebalance.answer_sync(member, SyncAnswer(error=ErrorCode.REBALANCE_IN_PROGRESS), step)
    step.park(token)
    member.sync_token = token
    if group.roster.leader_id == request.member_id:
        rebalance.store_assignment(group, dict(request.assignments), step)


def _sync_error(group: Group, request: SyncRequest) -> ErrorCode:
    error = group.roster.membership_error(request.member_id, request.group_instance_id)
    if error is not ErrorCode.NONE:
        return error
    if request.generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    if _differs(request.protocol_type, group.protocol_type):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if _differs(request.protocol_name, group.protocol_name):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state is GroupState.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def _differs(sent: str | None, known: str | None) -> bool:
    """KIP-559: clients send the protocol that they expect from v5 on."""
    return sent is not None and known is not None and sent != known


def heartbeat(group: Group, request: MemberHeartbeat, token: int, step: Step) -> None:
    error = group.roster.membership_error(request.member_id, request.group_instance_id)
    if error is ErrorCode.NONE:
        if request.generation_id != group.generation_id:
            error = ErrorCode.ILLEGAL_GENERATION
        else:
            error = HEARTBEAT_ANSWERS[group.state]
            step.start_session(group, group.roster[request.member_id])
    step.answer(token, HeartbeatAnswer(error=error))


def leave(group: Group, request: LeaveRequest, token: int, step: Step) -> None:
    """Removes all named members, then rebalances once."""
    results = tuple(
        LeftMember(member.member_id, member.group_instance_id, _remove(group, member, step))
        for member in request.members
    )
    step.answer(token, LeaveAnswer(members=results))
    has_changed = any(result.error is ErrorCode.NONE for result in results)
    if has_changed and group.state is not GroupState.EMPTY:
        rebalance.begin_or_complete(group, step)


def leave_unknown_group(request: LeaveRequest) -> LeaveAnswer:
    """An unknown group has no members: the request succeeds, each member is unknown."""
    if not request.group_id:
        return LeaveAnswer(error=ErrorCode.INVALID_GROUP_ID)
    return LeaveAnswer(
        members=tuple(
            LeftMember(member.member_id, member.group_instance_id, ErrorCode.UNKNOWN_MEMBER_ID)
            for member in request.members
        )
    )


def _remove(group: Group, leaving: LeavingMember, step: Step) -> ErrorCode:
    member_id = leaving.member_id
    if member_id == NO_MEMBER_ID:
        name = leaving.group_instance_id
        named = None if name is None else group.roster.static_member_id(name)
        if named is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        member_id = named
    elif member_id in group.roster.pending_ids:
        group.roster.remove(member_id)
        step.cancel_timer(group, TimerKind.SESSION, member_id)
        return ErrorCode.NONE
    else:
        error = group.roster.membership_error(member_id, leaving.group_instance_id)
        if error is not ErrorCode.NONE:
            return error
    rebalance.remove(group, group.roster[member_id], step)
    return ErrorCode.NONE
