"""AlterPartitionReassignments, API key 45: move partitions to other brokers (KIP-455).

v1  a change of the replication factor may be forbidden (KIP-860)

The answer reports which moves were accepted. They continue in the background, and
ListPartitionReassignments reports them. All accepted moves are one commit.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafkaesque.broker.cluster.rules.reassignment import WantedReassignment
from kafkaesque.broker.server.call import Call
from kafkaesque.broker.server.context import Context
from kafkaesque.broker.server.handler import handler
from kafkaesque.model.errors import ErrorCode, KafkaError
from kafkaesque.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)


async def alter_partition_reassignments(
    context: Context, request: AlterPartitionReassignmentsRequest, call: Call
) -> AlterPartitionReassignmentsResponse:
    wanted = [
        WantedReassignment(topic.name, partition.partition_index, partition.replicas)
        for topic in request.topics
        for partition in topic.partitions
    ]
    allowed = request.allow_replication_factor_change
    try:
        results = await context.cluster.submit(
            lambda controller: controller.alter_partition_reassignments(
                wanted, allow_factor_change=allowed
            )
        )
    except KafkaError as error:
        return _answer(allowed, error, [])
    shown = iter(map(_partition, wanted, results))
    rows = [
        ReassignableTopicResponse(
            name=topic.name, partitions=[next(shown) for _ in topic.partitions]
        )
        for topic in request.topics
    ]
    return _answer(allowed, None, rows)


def _partition(
    wanted: WantedReassignment, refusal: KafkaError | None
) -> ReassignablePartitionResponse:
    return ReassignablePartitionResponse(
        partition_index=wanted.partition,
        error_code=ErrorCode.NONE if refusal is None else refusal.code,
        error_message=None if refusal is None else str(refusal) or None,
    )


def _answer(
    allowed: bool, error: KafkaError | None, rows: Sequence[ReassignableTopicResponse]
) -> AlterPartitionReassignmentsResponse:
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=allowed,
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else str(error),
        responses=list(rows),
    )


HANDLER = handler(AlterPartitionReassignmentsRequest, versions=(0, 1), at_controller=True)(
    alter_partition_reassignments
)
