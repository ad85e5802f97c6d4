"""CreateTopics, API key 19.

v4  -1 for the broker's default count and factor (KIP-464); accepted from v2 on, as in Kafka
v5  flexible; the answer has count, factor and settings (KIP-525)
v7  the answer has the topic's id

The whole request is one commit, and it is answered when the topics can be written to: the request's
timeout has no effect. A name that occurs twice is answered once, with an error.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from kafkaesque.broker.cluster.rules.controller import Controller, Decision, NewTopic
from kafkaesque.broker.cluster.rules.tables import Topic
from kafkaesque.broker.server.call import Call
from kafkaesque.broker.server.config_view import topic_entries
from kafkaesque.broker.server.context import Context
from kafkaesque.broker.server.handler import handler
from kafkaesque.model.errors import (
    ErrorCode,
    InvalidReplicaAssignment,
    InvalidRequest,
    KafkaError,
)
from kafkaesque.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)


async def create_topics(
    context: Context, request: CreateTopicsRequest, call: Call
) -> CreateTopicsResponse:
    counts = Counter(topic.name for topic in request.topics)
    results: dict[str, Topic | KafkaError] = {}
    wanted = []
    for topic in request.topics:
        try:
            if counts[topic.name] > 1:
                raise InvalidRequest("Duplicate topic name.")
            wanted.append(_wanted(topic))
        except KafkaError as error:
            results[topic.name] = error
    made = await _create(context, wanted, validate_only=request.validate_only)
    results.update((topic.name, result) for topic, result in zip(wanted, made, strict=True))
    return CreateTopicsResponse(topics=[_shown(context, name, results[name]) for name in counts])


async def _create(
    context: Context, wanted: Sequence[NewTopic], *, validate_only: bool
) -> Sequence[Topic | KafkaError]:
    def operation(controller: Controller) -> Decision[list[Topic | KafkaError]]:
        decision = controller.create_topics(wanted)
        return decision.dry() if validate_only else decision

    try:
        made = await context.cluster.submit(operation)
    except KafkaError as error:
        return [error] * len(wanted)
    await context.cluster.wait_elected(topic.name for topic in wanted)
    return made


def _wanted(topic: CreatableTopic) -> NewTopic:
    assignments: dict[int, Sequence[int]] = {}
    for item in topic.assignments:
        if item.partition_index in assignments:
            raise InvalidReplicaAssignment(
                f"Found multiple manual partition assignments for partition {item.partition_index}"
            )
        assignments[item.partition_index] = item.broker_ids
    return NewTopic(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        {config.name: config.value for config in topic.configs},
        assignments,
    )


def _shown(context: Context, name: str, result: Topic | KafkaError) -> CreatableTopicResult:
    if isinstance(result, KafkaError):
        return CreatableTopicResult(
            name=name, error_code=result.code, error_message=str(result), configs=[]
        )
    return CreatableTopicResult(
        name=name,
        topic_id=result.topic_id,
        error_code=ErrorCode.NONE,
        error_message=None,
        num_partitions=result.partition_count,
        replication_factor=len(result.replicas[0]),
        configs=[
            CreatableTopicConfigs(
                name=entry.setting.name,
                value=entry.value,
                read_only=entry.read_only,
                config_source=entry.source,
                is_sensitive=False,
            )
            for entry in topic_entries(context.cluster, result.configs)
        ],
    )


HANDLER = handler(CreateTopicsRequest, versions=(2, 7), at_controller=True)(create_topics)
