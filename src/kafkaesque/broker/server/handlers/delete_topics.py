"""DeleteTopics, API key 20.

v3  TOPIC_DELETION_DISABLED if delete.topic.enable is false; INVALID_REQUEST before
v4  flexible
v5  error message
v6  topics by id (KIP-516)

The whole request is one commit. A topic named twice, even once by name and once by id, is answered
once, with an error, and is not deleted.
"""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple

from kafkaesque.broker.cluster.rules.controller import Controller, Decision, refuse_internal
from kafkaesque.broker.cluster.rules.tables import Tables, Topic
from kafkaesque.broker.server.call import Call
from kafkaesque.broker.server.context import Context
from kafkaesque.broker.server.handler import handler
from kafkaesque.model.errors import (
    ErrorCode,
    InvalidRequest,
    KafkaError,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from kafkaesque.model.ids import NO_TOPIC_ID, TopicId
from kafkaesque.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)

_HANDLES_SINCE: Final = 6
_DISABLED_SINCE: Final = 3


class Handle(NamedTuple):
    """A topic as a request names it: either by name or by id."""

    name: str | None
    topic_id: TopicId


async def delete_topics(
    context: Context, request: DeleteTopicsRequest, call: Call
) -> DeleteTopicsResponse:
    if call.version >= _HANDLES_SINCE:
        handles = [Handle(item.name, TopicId(item.topic_id)) for item in request.topics]
    else:
        handles = [Handle(name, NO_TOPIC_ID) for name in request.topic_names]
    if not context.config.delete_topic_enable:
        disabled = call.version >= _DISABLED_SINCE
        code = ErrorCode.TOPIC_DELETION_DISABLED if disabled else ErrorCode.INVALID_REQUEST
        return _refuse_all(handles, code, "Topic deletion is disabled.")
    try:
        results = await context.cluster.submit(lambda controller: _plan(controller, handles))
    except KafkaError as error:
        return _refuse_all(handles, error.code, str(error))
    return DeleteTopicsResponse(responses=results)


def _plan(controller: Controller, handles: list[Handle]) -> Decision[list[DeletableTopicResult]]:
    found: dict[Handle, Topic | KafkaError] = {}
    for handle, count in Counter(handles).items():
        try:
            found[handle] = _resolve(controller.tables, handle, count)
        except KafkaError as error:
            found[handle] = error
    named = Counter(topic.topic_id for topic in found.values() if isinstance(topic, Topic))
    doomed: list[Topic] = []
    results: dict[object, DeletableTopicResult] = {}
    for handle, topic in found.items():
        if isinstance(topic, KafkaError):
            results[handle] = _result(handle, topic.code, str(topic))
            continue
        full = Handle(topic.name, topic.topic_id)
        if named[topic.topic_id] > 1:
            results[topic.topic_id] = _result(
                full,
                ErrorCode.INVALID_REQUEST,
                "The provided topic name maps to an ID that was already supplied.",
            )
        else:
            results[topic.topic_id] = _result(full, ErrorCode.NONE, None)
            doomed.append(topic)
    return Decision(controller.delete_topics(doomed).commands, list(results.values()))


def _resolve(tables: Tables, handle: Handle, count: int) -> Topic:
    name, topic_id = handle
    if name is None and topic_id == NO_TOPIC_ID:
        raise InvalidRequest("Neither topic name nor id were specified.")
    if name is not None and topic_id != NO_TOPIC_ID:
        raise InvalidRequest("You may not specify both topic name and topic id.")
    if count > 1:
        raise InvalidRequest(f"Duplicate topic {'id' if name is None else 'name'}.")
    if name is None:
        topic = tables.by_id.get(topic_id)
        if topic is None:
            raise UnknownTopicId("This server does not host this topic ID.")
    else:
        topic = tables.by_name.get(name)
        if topic is None:
            raise UnknownTopicOrPartition("This server does not host this topic-partition.")
    refuse_internal(topic)
    return topic


def _refuse_all(handles: list[Handle], code: ErrorCode, message: str) -> DeleteTopicsResponse:
    return DeleteTopicsResponse(
        responses=[_result(handle, code, message) for handle in dict.fromkeys(handles)]
    )


def _result(handle: Handle, code: ErrorCode, message: str | None) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=handle.name, topic_id=handle.topic_id, error_code=code, error_message=message
    )


HANDLER = handler(DeleteTopicsRequest, versions=(1, 6), at_controller=True)(delete_topics)
