"""What DescribeGroups and ListGroups show of a group."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from kafkaesque.broker.groups.group import Group
from kafkaesque.broker.groups.transitions import GroupState
from kafkaesque.broker.groups.types import CLASSIC_GROUP_TYPE, DescribedGroup, ListedGroup
from kafkaesque.model.errors import ErrorCode


def describe(group: Group) -> DescribedGroup:
    """Assignments always, metadata and protocol only when Stable, as Kafka does."""
    protocol_name = group.protocol_name if group.state is GroupState.STABLE else None
    return DescribedGroup(
        group_id=group.group_id,
        state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_name=protocol_name or "",
        members=tuple(member.described(protocol_name) for member in group.roster),
    )


def describe_unknown(group_id: str, api_version: int) -> DescribedGroup:
    """A group that does not exist is Dead; from v6 on it is an error as well (KIP-1043)."""
    is_error = api_version >= 6
    return DescribedGroup(
        group_id=group_id,
        error=ErrorCode.GROUP_ID_NOT_FOUND if is_error else ErrorCode.NONE,
        error_message=f"Group {group_id} not found." if is_error else None,
        state=GroupState.DEAD.value,
    )


def list_groups(
    groups: Iterable[Group], states: Collection[str], types: Collection[str]
) -> list[ListedGroup]:
    """Filters compare without case; an empty filter lets everything pass (KIP-518, KIP-848)."""
    wanted_states = {state.strip().lower() for state in states}
    wanted_types = {kind.strip().lower() for kind in types}
    if wanted_types and CLASSIC_GROUP_TYPE.lower() not in wanted_types:
        return []
    return [
        ListedGroup(
            group.group_id, group.protocol_type or "", group.state.value, CLASSIC_GROUP_TYPE
        )
        for group in groups
        if not wanted_states or group.state.value.lower() in wanted_states
    ]
