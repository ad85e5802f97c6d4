"""DescribeConfigs, API key 32: the settings of topics and brokers.

v1  sources and synonyms (KIP-226)
v3  types and documentation (KIP-569)
v4  flexible

Only supported settings are listed: one that Kafka has and we ignore is absent.
"""

from __future__ import annotations

from kafkaesque.broker.cluster.rules.controller import check_topic_name
from kafkaesque.broker.server.call import Call
from kafkaesque.broker.server.config_view import (
    ConfigEntry,
    ResourceType,
    broker_default_entries,
    broker_entries,
    topic_entries,
)
from kafkaesque.broker.server.context import Context
from kafkaesque.broker.server.handler import handler
from kafkaesque.model.errors import (
    ErrorCode,
    InvalidRequest,
    KafkaError,
    UnknownTopicOrPartition,
)
from kafkaesque.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)


def describe_configs(
    context: Context, request: DescribeConfigsRequest, call: Call
) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(
        results=[_describe(context, request, resource) for resource in request.resources]
    )


def _describe(
    context: Context, request: DescribeConfigsRequest, resource: DescribeConfigsResource
) -> DescribeConfigsResult:
    entries: list[ConfigEntry] = []
    code, message = ErrorCode.NONE, ""
    try:
        entries = _entries(context, resource)
    except KafkaError as error:
        code, message = error.code, str(error)
    return DescribeConfigsResult(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[_shown(entry, request) for entry in entries],
    )


def _entries(context: Context, resource: DescribeConfigsResource) -> list[ConfigEntry]:
    name = resource.resource_name
    keys = frozenset(resource.configuration_keys or ())
    if resource.resource_type == ResourceType.TOPIC:
        check_topic_name(name)
        topic = context.cluster.tables.by_name.get(name)
        if topic is None:
            raise UnknownTopicOrPartition("")
        return topic_entries(context.cluster, topic.configs, keys)
    if resource.resource_type == ResourceType.BROKER:
        if not name:
            return broker_default_entries(context.cluster, keys)
        _check_own_id(name, context)
        return broker_entries(context.cluster, keys)
    raise InvalidRequest(f"Settings of resource type {resource.resource_type} are not supported")


def _check_own_id(name: str, context: Context) -> None:
    own_id = context.cluster.node_id
    try:
        given = int(name)
    except ValueError:
        raise InvalidRequest(f"Broker id must be an integer, but it is: {name}") from None
    if given != own_id:
        raise InvalidRequest(
            f"Unexpected broker id, expected {own_id} or empty string, but received {name}"
        )


def _shown(entry: ConfigEntry, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    synonyms = entry.synonyms if request.include_synonyms else ()
    return DescribeConfigsResourceResult(
        name=entry.setting.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=False,
        synonyms=[
            DescribeConfigsSynonym(name=item.name, value=item.value, source=item.source)
            for item in synonyms
        ],
        config_type=entry.setting.type,
        documentation=entry.setting.doc if request.include_documentation else None,
    )


HANDLER = handler(DescribeConfigsRequest, versions=(1, 4))(describe_configs)
