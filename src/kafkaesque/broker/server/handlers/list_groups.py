"""ListGroups, API key 16.

v3  flexible
v4  filter by state (KIP-518)
v5  filter by type (KIP-848)
"""

from __future__ import annotations

from kafkaesque.broker.server.call import Call
from kafkaesque.broker.server.context import Context
from kafkaesque.broker.server.handler import handler
from kafkaesque.model.errors import ErrorCode, KafkaError
from kafkaesque.wire.messages.list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)


def list_groups(context: Context, request: ListGroupsRequest, call: Call) -> ListGroupsResponse:
    groups = []
    for shard in context.groups:
        try:
            groups += shard.reading().list_groups(request.states_filter, request.types_filter)
        except KafkaError as error:
            return ListGroupsResponse(error_code=error.code, groups=[])
    return ListGroupsResponse(
        error_code=ErrorCode.NONE,
        groups=[
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type,
                group_state=group.state,
                group_type=group.group_type.lower(),
            )
            for group in groups
        ],
    )


HANDLER = handler(ListGroupsRequest, versions=(0, 5))(list_groups)
