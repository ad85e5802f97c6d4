"""JoinGroup: new, promised, returning and static members (KIP-394, KIP-345, KIP-814)."""

from __future__ import annotations

from collections.abc import Callable

from kafkaesque.broker.groups import rebalance
from kafkaesque.broker.groups.group import Group
from kafkaesque.broker.groups.member import Member
from kafkaesque.broker.groups.step import Step, TimerKind
from kafkaesque.broker.groups.transitions import GroupState
from kafkaesque.broker.groups.types import (
    NO_MEMBER_ID,
    JoinAnswer,
    JoinRequest,
    Protocol,
    SyncAnswer,
)
from kafkaesque.model.errors import ErrorCode

_MEMBER_ID_PREFIX_LENGTH_MAX = 8000
"""Characters; with the suffix a member id stays below the 32767 bytes of a string in the log."""


def join(
    group: Group, request: JoinRequest, token: int, new_id: Callable[[], str], step: Step
) -> None:
    """Decide on a join whose form is valid; it is answered now, or parked."""
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
    """`group.max.size`. During a rebalance those who already wait are counted, so that a group
    which is too large (the setting was lowered) loses its last comers."""
    if group.state is GroupState.EMPTY:
        return True
    member = group.roster.get(member_id)
    if group.state is GroupState.PREPARING_REBALANCE:
        if member is not None and member.is_awaiting_join:
            return True
        return group.roster.awaiting_join < step.config.group_size_max
    return member is not None or len(group.roster) < step.config.group_size_max


def _refuse(group: Group, member_id: str, step: Step) -> None:
    """Whoever finds the group full is out of it, even if it was a member of the last generation."""
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
    """A join with a member id: a promised one comes for the first time, or a member returns."""
    if request.member_id in group.roster.pending_ids:
        if request.group_instance_id is not None:
            # The id was promised to a dynamic member. Kafka fails with an internal error here.
            return ErrorCode.UNKNOWN_SERVER_ERROR
        _add(group, request, token, request.member_id, step)
        return ErrorCode.NONE
    error = group.roster.membership_error(request.member_id, request.group_instance_id)
    if error is not ErrorCode.NONE:
        return error
    _rejoin(group, request, token, group.roster[request.member_id], step)
    return ErrorCode.NONE


def _rejoin(group: Group, request: JoinRequest, token: int, member: Member, step: Step) -> None:
    """A member without news gets the current generation, others begin or continue a rebalance.

    A leader in a Stable group always has news: it joins again to have partitions assigned anew.
    """
    has_no_news = member.protocols == unique_by_name(request.protocols)
    is_leader = group.roster.leader_id == member.member_id
    match group.state:
        case GroupState.COMPLETING_REBALANCE if has_no_news:
            step.answer(token, group.join_answer(member.member_id))
        case GroupState.STABLE if has_no_news and not is_leader:
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
    # A new member does not know its id yet and cannot heartbeat; a longer timeout watches it.
    timeout_ms = step.config.new_member_join_timeout_ms
    step.start_timer(group, TimerKind.SESSION, timeout_ms, member_id)
    rebalance.begin_or_complete(group, step)


def _update(group: Group, request: JoinRequest, token: int, member: Member, step: Step) -> None:
    group.roster.set_protocols(member, unique_by_name(request.protocols))
    member.session_timeout_ms = request.session_timeout_ms
    member.rebalance_timeout_ms = _rebalance_timeout_ms(request)
    _wait_for_join(group, member, token, step)


def _wait_for_join(group: Group, member: Member, token: int, step: Step) -> None:
    # Kafka drops the answer of a join that the same member repeats; we free whoever waits for it.
    superseded = JoinAnswer(error=ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.member_id)
    rebalance.answer_join(group, member, superseded, step)
    step.park(token)
    group.roster.set_join_token(member, token)


def _replace_static(
    group: Group, request: JoinRequest, token: int, old: Member, new_member_id: str, step: Step
) -> None:
    """A static member is back under its name with a new id; the old id is fenced.

    In a Stable group where the protocol stays the same nobody else need notice.
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
            # In the latter the leader may be assigning partitions to the old id just now.
            rebalance.begin(group, step)
        case _:
            rebalance.complete_if_all_joined(group, step)


def _take_over(group: Group, old: Member, new_member_id: str, step: Step) -> Member:
    """Put the new id in the place of the old one, whose waiting requests are fenced."""
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
    """A returning leader must not assign anew. From v9 on it is told so (KIP-814); before, it is
    told the old leader's id, which it cannot know to be its own."""
    is_leader = group.roster.leader_id == member_id
    knows_skipping = request.can_skip_assignment
    leader_id = group.roster.leader_id if knows_skipping else old_leader_id
    return JoinAnswer(
        generation_id=group.generation_id,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=leader_id or NO_MEMBER_ID,
        skip_assignment=is_leader and knows_skipping,
        member_id=member_id,
        members=group.joined_members() if is_leader and knows_skipping else (),
    )


def unique_by_name(protocols: tuple[Protocol, ...]) -> tuple[Protocol, ...]:
    """The first of each name, as Kafka's keyed collection keeps them."""
    by_name: dict[str, Protocol] = {}
    for protocol in protocols:
        by_name.setdefault(protocol.name, protocol)
    return tuple(by_name.values())


def _rebalance_timeout_ms(request: JoinRequest) -> int:
    if request.rebalance_timeout_ms == -1:
        return request.session_timeout_ms
    return max(request.rebalance_timeout_ms, 0)
