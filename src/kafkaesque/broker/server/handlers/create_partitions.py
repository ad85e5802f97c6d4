"""CreatePartitions, API key 37: add partitions to a topic (KIP-195).

v2  flexible
v3  may report an exceeded quota; we have none

Each topic is a separate commit. A name that occurs twice is answered once, with an error.
"""

from __future__ import annotations

from collections import Counter

from kafkaesque.broker.cluster.rules.controller import Controller, Decision
from kafkaesque.broker.cluster.rules.errors import ControllerMoved
from kafkaesque.broker.server.call import Call
from kafkaesque.broker.server.context import Context
from kafkaesque.broker.server.handler import handler
from kafkaesque.model.errors import (
    ErrorCode,
    InvalidRequest,
    KafkaError,
    UnknownTopicOrPartition,
)
from kafkaesque.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)


async def create_partitions(
    context: Context, request: CreatePartitionsRequest, call: Call
) -> CreatePartitionsResponse:
    counts = Counter(topic.name for topic in request.topics)
    results: dict[str, CreatePartitionsTopicResult] = {}
    for topic in request.topics:
        code, message = ErrorCode.NONE, None
        try:
            if counts[topic.name] > 1:
                raise InvalidRequest("Duplicate topic name.")
            await _grow(context, topic, validate_only=request.validate_only)
        except ControllerMoved as moved:
            if not results:
                raise
            # Some topics are done. The client retries the others.
            code, message = ErrorCode.NOT_CONTROLLER, str(moved)
        except KafkaError as error:
            code, message = error.code, str(error) or None
        results[topic.name] = CreatePartitionsTopicResult(
            name=topic.name, error_code=code, error_message=message
        )
    return CreatePartitionsResponse(results=list(results.values()))


async def _grow(context: Context, wanted: CreatePartitionsTopic, *, validate_only: bool) -> None:
    assignments = wanted.assignments

    def operation(controller: Controller) -> Decision[None]:
        topic = controller.tables.by_name.get(wanted.name)
        if topic is None:
            raise UnknownTopicOrPartition("")
        decision = controller.create_partitions(
            topic,
            wanted.count,
            None if assignments is None else [item.broker_ids for item in assignments],
        )
        return decision.dry() if validate_only else decision

    await context.cluster.submit(operation)
    await context.cluster.wait_elected([wanted.name])


HANDLER = handler(CreatePartitionsRequest, versions=(0, 3), at_controller=True)(create_partitions)
