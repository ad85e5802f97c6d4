"""DescribeGroups, API key 15.

v3  authorized operations
v4  static members
v5  flexible
v6  GROUP_ID_NOT_FOUND with a message (KIP-1043)
"""

from __future__ import annotations

from kafkaesque.broker.groups import types
from kafkaesque.broker.server.call import Call
from kafkaesque.broker.server.context import Context
from kafkaesque.broker.server.handler import handler
from kafkaesque.model.errors import ErrorCode, KafkaError
from kafkaesque.wire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

GROUP_OPERATIONS = sum(1 << operation for operation in (3, 6, 8, 10, 11))
"""All operations are allowed without an authorizer. Bits by AclOperation: READ, DELETE, DESCRIBE,
DESCRIBE_CONFIGS, ALTER_CONFIGS."""
NOT_ASKED = -2147483648


def describe_groups(
    context: Context, request: DescribeGroupsRequest, call: Call
) -> DescribeGroupsResponse:
    operations = GROUP_OPERATIONS if request.include_authorized_operations else NOT_ASKED
    return DescribeGroupsResponse(
        groups=[_describe(context, group_id, call, operations) for group_id in request.groups]
    )


def _describe(context: Context, group_id: str, call: Call, operations: int) -> DescribedGroup:
    try:
        registry = context.groups.of_group(group_id).reading()
        found = registry.describe_groups([group_id], call.version)[0]
    except KafkaError as error:
        found = types.GroupDescription(
            group_id=group_id, error=error.code, error_message=str(error), state=""
        )
    return DescribedGroup(
        error_code=found.error,
        error_message=found.error_message,
        group_id=found.group_id,
        group_state=found.state,
        protocol_type=found.protocol_type,
        protocol_data=found.protocol_name,
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata,
                member_assignment=member.assignment,
            )
            for member in found.members
        ],
        # Kafka omits the authorized operations of a group that has an error.
        authorized_operations=operations if found.error is ErrorCode.NONE else NOT_ASKED,
    )


HANDLER = handler(DescribeGroupsRequest, versions=(0, 6))(describe_groups)
