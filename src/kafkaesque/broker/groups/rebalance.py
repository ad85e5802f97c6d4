"""The transition of a group from one generation to the next.

The counterpart of the rebalance methods of Kafka's GroupMetadataManager (4.3), with two differences
that no client can see as an error: a waiting request that Kafka forgets is answered here, and state
changes at once, because the driver holds answers back until the record is in the log.
"""

from __future__ import annotations

from kafkaesque.broker.groups.group import Group, InitialDelay
from kafkaesque.broker.groups.members import Member
from kafkaesque.broker.groups.step import Step, TimerKind
from kafkaesque.broker.groups.transitions import CAN_REBALANCE, GroupEvent, GroupState
from kafkaesque.broker.groups.types import JoinAnswer, SyncAnswer
from kafkaesque.model.errors import ErrorCode, check

_NEXT_TRY_MS_MIN = 1000
"""A member may send a rebalance timeout of 0; a join phase that cannot end would then spin."""


def begin_or_complete(group: Group, step: Step) -> None:
    """After a change of members: begins a rebalance, or completes the current one if possible."""
    if group.state in CAN_REBALANCE:
        begin(group, step)
    else:
        complete_if_all_joined(group, step)


def begin(group: Group, step: Step) -> None:
    """Begins a rebalance: all members must rejoin. An empty group first waits for more members."""
    if group.state is GroupState.COMPLETING_REBALANCE:
        for member in group.roster:
            member.assignment = b""
        _answer_syncs(group, ErrorCode.REBALANCE_IN_PROGRESS, step)
    group.pending_syncs.clear()
    step.cancel_timer(group, TimerKind.SYNC)
    was_empty = group.state is GroupState.EMPTY
    group.move(GroupEvent.REBALANCE_BEGAN, step.now.wall_ms)
    if was_empty:
        delay_ms = step.config.initial_rebalance_delay_ms
        remaining_ms = max(group.roster.rebalance_timeout_ms - delay_ms, 0)
        group.initial_delay = InitialDelay(delay_ms, remaining_ms)
        step.start_timer(group, TimerKind.JOIN, delay_ms)
    elif group.roster.all_joined:
        complete(group, step)
    else:
        step.start_timer(group, TimerKind.JOIN, group.roster.rebalance_timeout_ms)


def complete_if_all_joined(group: Group, step: Step) -> None:
    """Ends the join phase early, but not the initial delay of an empty group."""
    if group.state is not GroupState.PREPARING_REBALANCE or group.is_initial_rebalance:
        return
    if group.roster.all_joined:
        complete(group, step)


def on_join_timer(group: Group, step: Step) -> None:
    """The join phase has timed out; a new group that still grows waits longer."""
    if group.state is not GroupState.PREPARING_REBALANCE:
        return
    wait = group.initial_delay
    if wait is None or not wait.new_member_added or wait.remaining_ms == 0:
        complete(group, step)
        return
    delay_ms = min(step.config.initial_rebalance_delay_ms, wait.remaining_ms)
    group.initial_delay = InitialDelay(delay_ms, max(wait.remaining_ms - wait.delay_ms, 0))
    step.start_timer(group, TimerKind.JOIN, delay_ms)


def complete(group: Group, step: Step) -> None:
    """Ends the join phase without those that did not rejoin; static members stay until their session
    ends."""
    step.cancel_timer(group, TimerKind.JOIN)
    late = [m for m in group.roster if not m.is_awaiting_join and not m.is_static]
    for member in late:
        remove(group, member, step)
    if not group.roster.elect_joined_leader() and len(group.roster):
        # Only static members, and none rejoined: wait for them or for their sessions to end.
        group.initial_delay = None
        timeout_ms = max(group.roster.rebalance_timeout_ms, _NEXT_TRY_MS_MIN)
        step.start_timer(group, TimerKind.JOIN, timeout_ms)
        return
    group.begin_generation(step.now.wall_ms)
    if group.state is GroupState.EMPTY:
        step.append(group.as_record())
        return
    for member in group.roster:
        answer_join(group, member, group.join_answer(member.member_id), step)
        step.start_session(group, member)
        member.is_new = False
        group.pending_syncs.add(member.member_id)
    step.start_timer(group, TimerKind.SYNC, group.roster.rebalance_timeout_ms)


def store_assignment(group: Group, assignments: dict[str, bytes], step: Step) -> None:
    """Stores the leader's assignment; begins another rebalance if it is too large to store."""
    check(group.state is GroupState.COMPLETING_REBALANCE, "an assignment outside of the sync phase")
    for member in group.roster:
        member.assignment = assignments.get(member.member_id, b"")
    record = group.as_record()
    if len(record.value or b"") > step.config.group_record_bytes_max:
        # Kafka's answer when the log rejects the record as too large.
        for member in group.roster:
            member.assignment = b""
        _answer_syncs(group, ErrorCode.UNKNOWN_SERVER_ERROR, step)
        begin(group, step)
        return
    group.move(GroupEvent.ASSIGNMENT_STORED, step.now.wall_ms)
    # Kafka writes the record before it changes the state, so the record has the time of the end of
    # the join phase; nothing reads that time while the group has members.
    step.append(record)
    _answer_syncs(group, ErrorCode.NONE, step)


def on_sync_timer(group: Group, step: Step) -> None:
    """Removes members that joined but never sent SyncGroup."""
    if not group.pending_syncs or group.state not in CAN_REBALANCE:
        return
    for member_id in tuple(group.pending_syncs):
        member = group.roster.get(member_id)
        if member is not None:
            remove(group, member, step)
    begin(group, step)


def on_session_timer(group: Group, member_id: str, step: Step) -> None:
    """The session of a member, or of the owner of a pending id, has expired."""
    if member_id in group.roster.pending_ids:
        group.roster.remove(member_id)
        complete_if_last_missing(group, step)
        return
    member = group.roster.get(member_id)
    if member is None or member.needs_no_heartbeat:
        return
    remove(group, member, step)
    if group.state is GroupState.PREPARING_REBALANCE:
        complete_if_last_missing(group, step)
    else:
        begin_or_complete(group, step)


def complete_if_last_missing(group: Group, step: Step) -> None:
    """Like `complete_if_all_joined`, but also in the first rebalance of a group: as in Kafka, the
    failure of a member ends the initial delay."""
    if group.state is GroupState.PREPARING_REBALANCE and group.roster.all_joined:
        complete(group, step)


def remove(group: Group, member: Member, step: Step) -> None:
    """Removes a member and answers its waiting requests with UNKNOWN_MEMBER_ID."""
    step.cancel_timer(group, TimerKind.SESSION, member.member_id)
    answer_join(group, member, JoinAnswer(error=ErrorCode.UNKNOWN_MEMBER_ID), step)
    answer_sync(member, SyncAnswer(error=ErrorCode.UNKNOWN_MEMBER_ID), step)
    group.roster.remove(member.member_id)
    group.pending_syncs.discard(member.member_id)


def synced(group: Group, member_id: str, step: Step) -> None:
    """The member has sent SyncGroup."""
    group.pending_syncs.discard(member_id)
    if not group.pending_syncs:
        step.cancel_timer(group, TimerKind.SYNC)


def answer_join(group: Group, member: Member, answer: JoinAnswer, step: Step) -> None:
    """Answers the waiting join of `member`, if it has one."""
    token = member.join_token
    group.roster.set_join_token(member, None)
    step.answer_parked(token, answer)


def answer_sync(member: Member, answer: SyncAnswer, step: Step) -> None:
    token, member.sync_token = member.sync_token, None
    step.answer_parked(token, answer)


def _answer_syncs(group: Group, error: ErrorCode, step: Step) -> None:
    """Answers every waiting sync and restarts the session of its member, which did not have to
    heartbeat while it waited."""
    is_good = error is ErrorCode.NONE
    for member in group.roster:
        if member.sync_token is None:
            continue
        answer = SyncAnswer(
            error=error,
            protocol_type=group.protocol_type if is_good else None,
            protocol_name=group.protocol_name if is_good else None,
            assignment=member.assignment if is_good else b"",
        )
        answer_sync(member, answer, step)
        step.start_session(group, member)
