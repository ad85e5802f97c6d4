"""ListPartitionReassignments, API key 46: the partitions that are moving to other brokers."""

from __future__ import annotations

from kafkaesque.broker.cluster.rules.reassignment import OngoingReassignment
from kafkaesque.broker.server.call import Call
from kafkaesque.broker.server.context import Context
from kafkaesque.broker.server.handler import handler
from kafkaesque.model.errors import ErrorCode, KafkaError
from kafkaesque.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


async def list_partition_reassignments(
    context: Context, request: ListPartitionReassignmentsRequest, call: Call
) -> ListPartitionReassignmentsResponse:
    asked = None
    if request.topics is not None:
        asked = {topic.name: topic.partition_indexes for topic in request.topics}
    try:
        ongoing = await context.cluster.submit(
            lambda controller: controller.list_partition_reassignments(asked)
        )
    except KafkaError as error:
        return ListPartitionReassignmentsResponse(
            error_code=error.code, error_message=str(error), topics=[]
        )
    topics: dict[str, OngoingTopicReassignment] = {}
    for item in ongoing:
        row = topics.setdefault(
            item.topic, OngoingTopicReassignment(name=item.topic, partitions=[])
        )
        row.partitions.append(_partition(item))
    return ListPartitionReassignmentsResponse(
        error_code=ErrorCode.NONE, error_message=None, topics=list(topics.values())
    )


def _partition(item: OngoingReassignment) -> OngoingPartitionReassignment:
    return OngoingPartitionReassignment(
        partition_index=item.partition,
        replicas=list(item.assignment.all_replicas),
        adding_replicas=list(item.assignment.adding),
        removing_replicas=list(item.assignment.removing),
    )


HANDLER = handler(ListPartitionReassignmentsRequest, versions=(0, 0), at_controller=True)(
    list_partition_reassignments
)
