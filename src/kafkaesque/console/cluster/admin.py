"""Admin requests: create and delete topics, change settings, reset offsets, delete groups.

They use our own codec because librdkafka 2.16's admin client aborts the process
(`rd_kafka_enq_once_del_source_return: Assertion`) when a broker is slow to answer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

from kafkaesque.admin.requests import TOPIC_RESOURCE
from kafkaesque.admin.rules.offset_reset import OffsetChange
from kafkaesque.client.wire.asyncio_connection import AsyncConnection
from kafkaesque.client.wire.errors import ApiUnsupported, ConnectionLost
from kafkaesque.client.wire.pool import ConnectionPool
from kafkaesque.model.errors import ErrorCode
from kafkaesque.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kafkaesque.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from kafkaesque.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from kafkaesque.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from kafkaesque.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from kafkaesque.wire.table import Request, Response

R = TypeVar("R", bound=Response)

TIMEOUT_MS: Final = 10_000
_SET, _DELETE = 0, 1
_REASONS: Final = {
    ErrorCode.UNKNOWN_MEMBER_ID: "the group has active members; stop them first",
    ErrorCode.NON_EMPTY_GROUP: "the group has active members; stop them first",
    ErrorCode.ILLEGAL_GENERATION: "the group has active members; stop them first",
    ErrorCode.TOPIC_ALREADY_EXISTS: "a topic with this name already exists",
    ErrorCode.GROUP_ID_NOT_FOUND: "the group does not exist",
}


class AdminRequestFailed(Exception):
    """The request failed; the message gives the reason."""


class ConsoleAdmin:
    """Sends requests to the controller or a group's coordinator. `controller` returns the current id."""

    def __init__(self, links: ConnectionPool, controller: Callable[[], int]) -> None:
        self._links = links
        self._controller = controller

    async def create_topic(
        self, name: str, partitions: int, replicas: int, settings: Mapping[str, str]
    ) -> None:
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replicas,
            assignments=[],
            configs=[CreatableTopicConfig(name=key, value=text) for key, text in settings.items()],
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)
        doing = f"create topic '{name}'"
        answer = await self._call_controller(request, CreateTopicsResponse, doing)
        for result in answer.topics:
            _check(result.error_code, result.error_message, doing)

    async def delete_topic(self, name: str) -> None:
        request = DeleteTopicsRequest(topic_names=[name], timeout_ms=TIMEOUT_MS)
        doing = f"delete topic '{name}'"
        answer = await self._call_controller(request, DeleteTopicsResponse, doing, version_max=5)
        for result in answer.responses:
            _check(result.error_code, result.error_message, doing)

    async def set_topic_setting(self, topic: str, name: str, value: str | None) -> None:
        """Set a topic setting; None resets it to its default."""
        change = AlterableConfig(
            name=name, config_operation=_DELETE if value is None else _SET, value=value
        )
        resource = AlterConfigsResource(
            resource_type=TOPIC_RESOURCE, resource_name=topic, configs=[change]
        )
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        doing = f"set {name} of topic '{topic}'"
        answer = await self._call_controller(request, IncrementalAlterConfigsResponse, doing)
        for result in answer.responses:
            _check(result.error_code, result.error_message, doing)

    async def reset_offsets(
        self, coordinator: int, group: str, changes: Sequence[OffsetChange]
    ) -> None:
        """Commit the planned offsets without a member id, which Kafka allows only for an empty group."""
        by_topic: dict[str, list[OffsetCommitRequestPartition]] = defaultdict(list)
        for change in changes:
            by_topic[change.topic].append(
                OffsetCommitRequestPartition(
                    partition_index=change.partition,
                    committed_offset=change.new,
                    committed_metadata="",
                )
            )
        request = OffsetCommitRequest(
            group_id=group,
            member_id="",
            topics=[
                OffsetCommitRequestTopic(name=name, partitions=partitions)
                for name, partitions in by_topic.items()
            ],
        )
        doing = f"reset the offsets of group '{group}'"
        answer = await self._call(await self._node(coordinator, doing), request,
                                 OffsetCommitResponse, doing, version_max=9)  # fmt: skip
        for topic in answer.topics:
            for item in topic.partitions:
                _check(item.error_code, None, doing)

    async def delete_group(self, coordinator: int, group: str) -> None:
        doing = f"delete group '{group}'"
        link = await self._node(coordinator, doing)
        request = DeleteGroupsRequest(groups_names=[group])
        answer = await self._call(link, request, DeleteGroupsResponse, doing)
        for result in answer.results:
            _check(result.error_code, None, doing)

    async def _node(self, number: int, doing: str) -> AsyncConnection:
        try:
            return await self._links.node(number)
        except ConnectionLost as error:
            raise AdminRequestFailed(f"cannot {doing}: {error}") from None

    async def _call_controller(
        self, request: Request, answer: type[R], doing: str, version_max: int = 99
    ) -> R:
        """Prefer the controller; if it is unreachable, any broker forwards the request."""
        try:
            link = await self._links.node(self._controller())
        except ConnectionLost:
            link = await self._links.any()
        return await self._call(link, request, answer, doing, version_max)

    async def _call(
        self,
        link: AsyncConnection,
        request: Request,
        answer: type[R],
        doing: str,
        version_max: int = 99,
    ) -> R:
        try:
            return await link.call(request, answer, version_max=version_max)
        except ConnectionLost as error:
            raise AdminRequestFailed(
                f"cannot {doing}: {error}; the request may have been carried out"
            ) from None
        except ApiUnsupported:
            raise AdminRequestFailed(
                f"cannot {doing}: this Kafka does not support the request"
            ) from None


def _check(code: int, message: str | None, doing: str) -> None:
    if not code:
        return
    try:
        kind = ErrorCode(code)
    except ValueError:
        raise AdminRequestFailed(f"cannot {doing}: {message or f'error {code}'}") from None
    reason = _REASONS.get(kind) or message or kind.name.lower().replace("_", " ")
    raise AdminRequestFailed(f"cannot {doing}: {reason}")
