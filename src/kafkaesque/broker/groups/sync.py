"""SyncGroup and Heartbeat: what the members of a generation ask between two joins."""

from __future__ import annotations

from kafkaesque.broker.groups import rebalance
from kafkaesque.broker.groups.group import Group
from kafkaesque.broker.groups.step import Step
from kafkaesque.broker.groups.transitions import HEARTBEAT_ANSWERS, GroupState
from kafkaesque.broker.groups.types import (
    HeartbeatAnswer,
    HeartbeatRequest,
    SyncAnswer,
    SyncRequest,
)
from kafkaesque.model.errors import ErrorCode


def sync(group: Group, request: SyncRequest, token: int, step: Step) -> None:
    """The leader brings the assignment, followers wait for it; once Stable everybody has it."""
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
    # As with joins, a sync that the same member repeats frees the one before.
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


def _differs(said: str | None, known: str | None) -> bool:
    """KIP-559: clients from v5 on say which protocol they believe in; older ones say nothing."""
    return said is not None and known is not None and said != known


def heartbeat(group: Group, request: HeartbeatRequest, token: int, step: Step) -> None:
    error = group.roster.membership_error(request.member_id, request.group_instance_id)
    if error is ErrorCode.NONE:
        if request.generation_id != group.generation_id:
            error = ErrorCode.ILLEGAL_GENERATION
        else:
            error = HEARTBEAT_ANSWERS[group.state]
            step.start_session(group, group.roster[request.member_id])
    step.answer(token, HeartbeatAnswer(error=error))
