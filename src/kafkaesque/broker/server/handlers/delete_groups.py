"""DeleteGroups, API key 42.

v2  flexible
"""

from __future__ import annotations

from kafkaesque.broker.groups.types import DeleteGroupsAnswer
from kafkaesque.broker.server.call import Call
from kafkaesque.broker.server.context import Context
from kafkaesque.broker.server.handler import handler
from kafkaesque.model.errors import ErrorCode, KafkaError
from kafkaesque.wire.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)


async def delete_groups(
    context: Context, request: DeleteGroupsRequest, call: Call
) -> DeleteGroupsResponse:
    results = []
    for group_id in dict.fromkeys(request.groups_names):
        code = await _delete(context, group_id)
        results.append(DeletableGroupResult(group_id=group_id, error_code=code))
    return DeleteGroupsResponse(results=results)


async def _delete(context: Context, group_id: str) -> ErrorCode:
    try:
        answer = await context.groups.of_group(group_id).ask(
            lambda registry, token, now: registry.delete_groups((group_id,), token, now),
            DeleteGroupsAnswer,
        )
    except KafkaError as error:
        return error.code
    return answer.groups[0].error


HANDLER = handler(DeleteGroupsRequest, versions=(0, 2))(delete_groups)
