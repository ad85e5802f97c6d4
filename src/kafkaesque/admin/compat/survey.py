"""Surveys which features a cluster uses and which another one offers. Changes nothing in either.

CreateTopics with validate_only finds out which topic settings the target accepts: it also applies the
policies of the target's operator.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, TypeVar
from uuid import UUID, uuid4

from kafkaesque.admin import requests
from kafkaesque.admin.cluster import BROKER_RESOURCE
from kafkaesque.admin.compat.rules.verdicts import (
    BatchUse,
    GroupUse,
    Offer,
    TopicUse,
    Usage,
    known_apache_kafka,
)
from kafkaesque.admin.connection import ClusterConnection
from kafkaesque.admin.errors import BrokerUnavailable
from kafkaesque.admin.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from kafkaesque.client.wire.asyncio_connection import AsyncConnection
from kafkaesque.client.wire.errors import ApiUnsupported, ConnectionLost, error_name
from kafkaesque.client.wire.pool import ConnectionPool
from kafkaesque.model.address import Address
from kafkaesque.model.errors import ErrorCode, KafkaError
from kafkaesque.records.batch import Codec, read_header
from kafkaesque.records.layout import MAGIC_POSITION
from kafkaesque.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kafkaesque.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from kafkaesque.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from kafkaesque.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from kafkaesque.wire.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from kafkaesque.wire.messages.metadata import MetadataResponse, MetadataResponseTopic
from kafkaesque.wire.table import NO_UUID, Request, Response

DYNAMIC_TOPIC_CONFIG: Final = 1
DYNAMIC_DEFAULT_BROKER_CONFIG: Final = 3
"""Sources of a setting in DescribeConfigs."""
ANY: Final = 1
"""A filter of DescribeAcls that matches everything."""
SAMPLED_TOPICS_MAX: Final = 200
SAMPLE_BYTES: Final = 4096
"""Enough for a batch header; nothing else is read."""
PROBES_AT_ONCE: Final = 100
FETCH_VERSION_MAX: Final = 12
"""The last version of Fetch that names topics; later ones have topic ids."""

R = TypeVar("R", bound=Response)


class Survey(NamedTuple):
    """The features of the source in use, and those of the target."""

    usage: Usage
    offer: Offer


async def survey(source: ClusterConnection, target: ClusterConnection | None) -> Survey:
    """Surveys both clusters; without a target, compares with Apache Kafka 4.x. Raises AdminError."""
    source_pool = source.pool()
    target_pool = target.pool() if target else None
    asked = source
    try:
        usage = await survey_usage(source_pool)
        if target is None or target_pool is None:
            return Survey(usage, known_apache_kafka(usage))
        asked = target
        return Survey(usage, await survey_offer(target_pool, target.bootstrap, usage))
    except ConnectionLost as error:
        raise BrokerUnavailable(
            f"no answer from {asked.bootstrap}: {error}", asked.diagnosis_hint
        ) from None
    finally:
        source_pool.close()
        if target_pool is not None:
            target_pool.close()


async def survey_usage(
    pool: ConnectionPool, *, sampled_topics_max: int = SAMPLED_TOPICS_MAX
) -> Usage:
    """The features that the cluster uses. Raises ConnectionLost if no broker answers."""
    seen = await _metadata(pool)
    topics = [topic for topic in seen.topics if topic.name and not topic.is_internal]
    apis = (await pool.any()).protocol.api_versions.apis
    unseen: list[str] = []
    brokers = [broker.node_id for broker in seen.brokers]
    found = await asyncio.gather(
        _topic_uses(pool, topics),
        _group_uses(pool, brokers),
        _batch_uses(pool, topics[:sampled_topics_max]),
        _transactional_ids(pool, brokers),
        _cluster_settings(pool),
    )
    if len(topics) > sampled_topics_max:
        unseen.append(f"the records of {len(topics) - sampled_topics_max} more topics")
    connection = await pool.any()
    return Usage(
        apis=apis,
        topics=found[0],
        has_topic_ids=any(topic.topic_id != NO_UUID for topic in topics),
        groups=found[1],
        batches=found[2],
        transactional_ids=found[3],
        cluster_settings=found[4],
        acls=await _acls(connection, unseen) or 0,
        quotas=await _quotas(connection, unseen),
        scram_users=await _scram_users(connection, unseen),
        unseen=unseen,
    )


async def survey_offer(pool: ConnectionPool, name: str, usage: Usage) -> Offer:
    """The features of the target. Raises ConnectionLost if no broker answers."""
    seen = await _metadata(pool)
    connection = await pool.any()
    pairs = sorted({pair for topic in usage.topics for pair in topic.settings.items()})
    settings = await _configs(connection, BROKER_RESOURCE, [str(seen.brokers[0].node_id)])
    return Offer(
        name=name,
        apis=connection.protocol.api_versions.apis,
        brokers=len(seen.brokers),
        refused=await _refused(connection, pairs),
        broker_settings=frozenset(item.name for rows in settings.values() for item in rows),
        has_authorizer=await _acls(connection, []) is not None,
    )


async def _metadata(pool: ConnectionPool) -> MetadataResponse:
    seen = await requests.fetch_metadata(pool)
    pool.set_brokers({item.node_id: Address(item.host, item.port) for item in seen.brokers})
    return seen


async def _configs(
    connection: AsyncConnection, kind: int, names: Sequence[str]
) -> dict[str, list[DescribeConfigsResourceResult]]:
    found: dict[str, list[DescribeConfigsResourceResult]] = {}
    for chunk in requests.chunks(names, requests.TOPICS_AT_ONCE):
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(
                    resource_type=kind, resource_name=name, configuration_keys=None
                )
                for name in chunk
            ]
        )
        answer = await connection.call(request, DescribeConfigsResponse)
        found |= {
            result.resource_name: result.configs
            for result in answer.results
            if not result.error_code
        }
    return found


def _given(rows: Iterable[DescribeConfigsResourceResult], source: int) -> dict[str, str]:
    return {item.name: item.value or "" for item in rows if item.config_source == source}


async def _topic_uses(
    pool: ConnectionPool, topics: Sequence[MetadataResponseTopic]
) -> list[TopicUse]:
    names = [topic.name or "" for topic in topics]
    configs = await _configs(await pool.any(), requests.TOPIC_RESOURCE, names)
    return [
        TopicUse(
            topic.name or "",
            max((len(partition.replica_nodes) for partition in topic.partitions), default=1),
            _given(configs.get(topic.name or "", ()), DYNAMIC_TOPIC_CONFIG),
        )
        for topic in topics
    ]


async def _cluster_settings(pool: ConnectionPool) -> dict[str, str]:
    found = await _configs(await pool.any(), BROKER_RESOURCE, [""])
    return _given((item for rows in found.values() for item in rows), DYNAMIC_DEFAULT_BROKER_CONFIG)


async def _group_uses(pool: ConnectionPool, brokers: Iterable[int]) -> list[GroupUse]:
    by_place: dict[tuple[int, str], list[str]] = defaultdict(list)
    for listed in await requests.list_groups(pool, brokers):
        # Kafka writes "Classic". Before KIP-848 there was no other kind, and the field is empty.
        kind = listed.group.group_type.lower() or "classic"
        by_place[listed.coordinator, kind].append(listed.group.group_id)
    uses = []
    for (coordinator, kind), names in by_place.items():
        connection = await pool.node(coordinator)
        for chunk in requests.chunks(names, requests.GROUPS_AT_ONCE):
            static = await _static_groups(connection, kind, chunk)
            uses += [GroupUse(name, kind, name in static) for name in chunk]
    return uses


async def _static_groups(connection: AsyncConnection, kind: str, names: Sequence[str]) -> set[str]:
    """Groups with a static member (KIP-345)."""
    if kind == "classic":
        classic = await connection.call(
            DescribeGroupsRequest(groups=list(names)), DescribeGroupsResponse
        )
        return {
            group.group_id
            for group in classic.groups
            if any(member.group_instance_id for member in group.members)
        }
    if kind == "consumer":
        request = ConsumerGroupDescribeRequest(group_ids=list(names))
        newer = await connection.call(request, ConsumerGroupDescribeResponse)
        return {
            group.group_id
            for group in newer.groups
            if any(member.instance_id for member in group.members)
        }
    return set()


async def _transactional_ids(pool: ConnectionPool, brokers: Iterable[int]) -> list[str]:
    request = ListTransactionsRequest(state_filters=[], producer_id_filters=[])

    async def ask(broker: int) -> ListTransactionsResponse:
        return await (await pool.node(broker)).call(request, ListTransactionsResponse)

    answers = await requests.gather_available(map(ask, brokers))
    return [one.transactional_id for answer in answers for one in answer.transaction_states]


async def _batch_uses(
    pool: ConnectionPool, topics: Sequence[MetadataResponseTopic]
) -> list[BatchUse]:
    """The oldest and the newest batch of one partition of each topic."""
    leaders = {
        (topic.name or "", partition.partition_index): partition.leader_id
        for topic in topics
        for partition in topic.partitions
        if partition.leader_id >= 0
    }
    starts = await requests.list_offsets(pool, leaders, requests.EARLIEST)
    ends = await requests.list_offsets(pool, leaders, requests.LATEST)
    uses = []
    for topic in topics:
        places = [(topic.name or "", item.partition_index) for item in topic.partitions]
        filled = [place for place in places if ends.get(place, 0) > starts.get(place, 0)]
        for place in filled[:1]:
            for offset in sorted({starts.get(place, 0), ends[place] - 1}):
                batch = await _batch_at(pool, place, topic.topic_id, leaders[place], offset)
                uses += [batch] if batch else []
    return uses


async def _batch_at(
    pool: ConnectionPool, place: tuple[str, int], topic_id: UUID, leader: int, offset: int
) -> BatchUse | None:
    name, index = place
    partition = FetchPartition(
        partition=index, fetch_offset=offset, partition_max_bytes=SAMPLE_BYTES
    )
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        topics=[FetchTopic(topic=name, topic_id=topic_id, partitions=[partition])],
    )
    connection = await pool.node(leader)
    answer = await connection.call(request, FetchResponse, version_max=FETCH_VERSION_MAX)
    records = [item.records for topic in answer.responses for item in topic.partitions]
    if not records or not records[0] or len(records[0]) <= MAGIC_POSITION:
        return None
    try:
        header = read_header(records[0])
    except KafkaError:
        return BatchUse(name, records[0][MAGIC_POSITION], "none", False, False)
    codec = Codec(header.codec).name.lower() if header.codec in set(Codec) else str(header.codec)
    return BatchUse(name, header.magic, codec, header.producer_id >= 0, header.is_transactional)


async def _refused(
    connection: AsyncConnection, pairs: Sequence[tuple[str, str]]
) -> dict[tuple[str, str], str]:
    """Settings that the target rejects for a new topic, with the reason. Creates nothing."""
    probes = {f"kafkaesque-compat-{uuid4()}": pair for pair in pairs}
    refused: dict[tuple[str, str], str] = {}
    for chunk in requests.chunks(list(probes), PROBES_AT_ONCE):
        request = CreateTopicsRequest(
            topics=[_probe(name, *probes[name]) for name in chunk], validate_only=True
        )
        answer = await connection.call(request, CreateTopicsResponse)
        for topic in answer.topics:
            if topic.error_code:
                reason = topic.error_message or error_name(topic.error_code)
                refused[probes[topic.name]] = reason.replace(topic.name, "the topic")
    return refused


def _probe(name: str, setting: str, value: str) -> CreatableTopic:
    configs = [CreatableTopicConfig(name=setting, value=value)]
    return CreatableTopic(
        name=name, num_partitions=1, replication_factor=1, assignments=[], configs=configs
    )


async def _call_if_supported(
    connection: AsyncConnection, request: Request, answer: type[R]
) -> R | None:
    try:
        return await connection.call(request, answer)
    except ApiUnsupported:
        return None


async def _acls(connection: AsyncConnection, unseen: list[str]) -> int | None:
    """The number of ACLs; None if the cluster has no authorizer."""
    request = DescribeAclsRequest(
        resource_type_filter=ANY,
        resource_name_filter=None,
        pattern_type_filter=ANY,
        principal_filter=None,
        host_filter=None,
        operation=ANY,
        permission_type=ANY,
    )
    answer = await _call_if_supported(connection, request, DescribeAclsResponse)
    if answer is None or answer.error_code == ErrorCode.SECURITY_DISABLED:
        return None
    if answer.error_code:
        unseen.append(_refusal("ACLs", answer.error_code))
    return sum(len(resource.acls) for resource in answer.resources)


async def _quotas(connection: AsyncConnection, unseen: list[str]) -> int:
    request = DescribeClientQuotasRequest(components=[], strict=False)
    answer = await _call_if_supported(connection, request, DescribeClientQuotasResponse)
    if answer is not None and answer.error_code:
        unseen.append(_refusal("quotas", answer.error_code))
    return len(answer.entries or ()) if answer is not None else 0


async def _scram_users(connection: AsyncConnection, unseen: list[str]) -> list[str]:
    request = DescribeUserScramCredentialsRequest(users=None)
    answer = await _call_if_supported(connection, request, DescribeUserScramCredentialsResponse)
    if answer is not None and answer.error_code:
        unseen.append(_refusal("SCRAM users", answer.error_code))
    return [item.user for item in answer.results] if answer is not None else []


def _refusal(what: str, code: int) -> str:
    return f"{what}: the cluster refused ({error_name(code)})"
