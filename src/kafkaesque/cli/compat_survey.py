"""Asks a cluster what it uses, and another what it offers. Changes nothing in either.

What the target takes is asked of itself, by CreateTopics with validate_only: no list of ours could
know the policies of its operator.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final, TypeVar
from uuid import UUID, uuid4

from kafkaesque.cli.compat_apis import ApiRange
from kafkaesque.cli.compat_rules import BatchUse, GroupUse, Offer, TopicUse, Usage
from kafkaesque.cli.compat_tables import (
    DescribeAclsRequest,
    DescribeAclsResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from kafkaesque.console.cluster import queries
from kafkaesque.console.cluster.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from kafkaesque.console.cluster.link import KafkaLink, NotOffered
from kafkaesque.console.cluster.links import KafkaLinks
from kafkaesque.model.errors import ErrorCode, KafkaError
from kafkaesque.records.batch import MAGIC_POSITION, Codec, read_header
from kafkaesque.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
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

TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
SET_FOR_TOPIC, SET_FOR_CLUSTER = 1, 3
"""DescribeConfigs' DYNAMIC_TOPIC_CONFIG and DYNAMIC_DEFAULT_BROKER_CONFIG."""
ANY = 1
SAMPLED_TOPICS_MAX: Final = 200
SAMPLE_BYTES: Final = 4096
"""Enough for a header, which is all that is read."""
PROBES_AT_ONCE: Final = 100
FETCH_BY_NAME: Final = 12
"""The last version of Fetch that names topics; the next goes by their ids."""

R = TypeVar("R", bound=Response)


async def look_at(links: KafkaLinks, *, sampled_topics_max: int = SAMPLED_TOPICS_MAX) -> Usage:
    """All that the cluster uses. Unreachable if nobody answers."""
    seen = await _learn(links)
    topics = [topic for topic in seen.topics if topic.name and not topic.is_internal]
    apis = await _apis(await links.any())
    unseen: list[str] = []
    brokers = [broker.node_id for broker in seen.brokers]
    found = await asyncio.gather(
        _topic_uses(links, topics),
        _group_uses(links, brokers),
        _batch_uses(links, topics[:sampled_topics_max]),
        _transactional_ids(links, brokers),
        _cluster_settings(links),
    )
    if len(topics) > sampled_topics_max:
        unseen.append(f"the records of {len(topics) - sampled_topics_max} more topics")
    link = await links.any()
    return Usage(
        apis=apis,
        topics=found[0],
        has_topic_ids=any(topic.topic_id != NO_UUID for topic in topics),
        groups=found[1],
        batches=found[2],
        transactional_ids=found[3],
        cluster_settings=found[4],
        acls=await _acls(link, unseen) or 0,
        quotas=await _quotas(link, unseen),
        scram_users=await _scram_users(link, unseen),
        unseen=unseen,
    )


async def ask_offer(links: KafkaLinks, name: str, usage: Usage) -> Offer:
    """What the target has of what is in use. Unreachable if nobody answers."""
    seen = await _learn(links)
    link = await links.any()
    pairs = sorted({pair for topic in usage.topics for pair in topic.settings.items()})
    settings = await _configs(link, BROKER_RESOURCE, [str(seen.brokers[0].node_id)])
    return Offer(
        name=name,
        apis=await _apis(link),
        brokers=len(seen.brokers),
        refused=await _refused(link, pairs),
        broker_settings=frozenset(item.name for rows in settings.values() for item in rows),
        has_authorizer=await _acls(link, []) is not None,
    )


async def _learn(links: KafkaLinks) -> MetadataResponse:
    seen = await queries.fetch_metadata(links)
    links.learn({broker.node_id: (broker.host, broker.port) for broker in seen.brokers})
    return seen


async def _apis(link: KafkaLink) -> dict[int, ApiRange]:
    request = ApiVersionsRequest(client_software_name="kafkaesque", client_software_version="cli")
    answer = await link.call(request, ApiVersionsResponse)
    return {item.api_key: ApiRange(item.min_version, item.max_version) for item in answer.api_keys}


async def _configs(
    link: KafkaLink, kind: int, names: Sequence[str]
) -> dict[str, list[DescribeConfigsResourceResult]]:
    found: dict[str, list[DescribeConfigsResourceResult]] = {}
    for chunk in queries.chunks(names, queries.TOPICS_AT_ONCE):
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(
                    resource_type=kind, resource_name=name, configuration_keys=None
                )
                for name in chunk
            ]
        )
        answer = await link.call(request, DescribeConfigsResponse)
        found |= {
            result.resource_name: result.configs
            for result in answer.results
            if not result.error_code
        }
    return found


def _given(rows: Iterable[DescribeConfigsResourceResult], source: int) -> dict[str, str]:
    return {item.name: item.value or "" for item in rows if item.config_source == source}


async def _topic_uses(links: KafkaLinks, topics: Sequence[MetadataResponseTopic]) -> list[TopicUse]:
    names = [topic.name or "" for topic in topics]
    configs = await _configs(await links.any(), TOPIC_RESOURCE, names)
    return [
        TopicUse(
            topic.name or "",
            max((len(partition.replica_nodes) for partition in topic.partitions), default=1),
            _given(configs.get(topic.name or "", ()), SET_FOR_TOPIC),
        )
        for topic in topics
    ]


async def _cluster_settings(links: KafkaLinks) -> dict[str, str]:
    found = await _configs(await links.any(), BROKER_RESOURCE, [""])
    return _given((item for rows in found.values() for item in rows), SET_FOR_CLUSTER)


async def _group_uses(links: KafkaLinks, brokers: Iterable[int]) -> list[GroupUse]:
    by_place: dict[tuple[int, str], list[str]] = defaultdict(list)
    for listed in await queries.list_groups(links, brokers):
        # Kafka says "Classic"; one before KIP-848 says nothing, and has no other kind.
        kind = listed.group.group_type.lower() or "classic"
        by_place[listed.coordinator, kind].append(listed.group.group_id)
    uses = []
    for (coordinator, kind), names in by_place.items():
        link = await links.node(coordinator)
        for chunk in queries.chunks(names, queries.GROUPS_AT_ONCE):
            static = await _static_groups(link, kind, chunk)
            uses += [GroupUse(name, kind, name in static) for name in chunk]
    return uses


async def _static_groups(link: KafkaLink, kind: str, names: Sequence[str]) -> set[str]:
    """Groups with a member that has a name of its own (KIP-345)."""
    if kind == "classic":
        classic = await link.call(DescribeGroupsRequest(groups=list(names)), DescribeGroupsResponse)
        return {
            group.group_id
            for group in classic.groups
            if any(member.group_instance_id for member in group.members)
        }
    if kind == "consumer":
        request = ConsumerGroupDescribeRequest(group_ids=list(names))
        newer = await link.call(request, ConsumerGroupDescribeResponse)
        return {
            group.group_id
            for group in newer.groups
            if any(member.instance_id for member in group.members)
        }
    return set()


async def _transactional_ids(links: KafkaLinks, brokers: Iterable[int]) -> list[str]:
    request = ListTransactionsRequest(state_filters=[], producer_id_filters=[])

    async def ask(broker: int) -> ListTransactionsResponse:
        return await (await links.node(broker)).call(request, ListTransactionsResponse)

    answers = await queries.gather_available(map(ask, brokers))
    return [one.transactional_id for answer in answers for one in answer.transaction_states]


async def _batch_uses(links: KafkaLinks, topics: Sequence[MetadataResponseTopic]) -> list[BatchUse]:
    """The oldest and the newest batch of a partition of every topic."""
    leaders = {
        (topic.name or "", partition.partition_index): partition.leader_id
        for topic in topics
        for partition in topic.partitions
        if partition.leader_id >= 0
    }
    starts = await queries.list_offsets(links, leaders, queries.EARLIEST)
    ends = await queries.list_offsets(links, leaders, queries.LATEST)
    uses = []
    for topic in topics:
        places = [(topic.name or "", item.partition_index) for item in topic.partitions]
        filled = [place for place in places if ends.get(place, 0) > starts.get(place, 0)]
        for place in filled[:1]:
            for offset in sorted({starts.get(place, 0), ends[place] - 1}):
                batch = await _batch_at(links, place, topic.topic_id, leaders[place], offset)
                uses += [batch] if batch else []
    return uses


async def _batch_at(
    links: KafkaLinks, place: tuple[str, int], topic_id: UUID, leader: int, offset: int
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
    link = await links.node(leader)
    answer = await link.call(request, FetchResponse, version_max=FETCH_BY_NAME)
    records = [item.records for topic in answer.responses for item in topic.partitions]
    if not records or not records[0] or len(records[0]) <= MAGIC_POSITION:
        return None
    try:
        header = read_header(records[0])
    except KafkaError:
        return BatchUse(name, records[0][MAGIC_POSITION], "none", False, False)
    codec = Codec(header.codec).name.lower() if header.codec in set(Codec) else str(header.codec)
    return BatchUse(name, header.magic, codec, header.producer_id >= 0, header.is_transactional)


async def _refused(link: KafkaLink, pairs: Sequence[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Settings with which the target would not create a topic, and why. Creates nothing."""
    probes = {f"kafkaesque-compat-{uuid4()}": pair for pair in pairs}
    refused: dict[tuple[str, str], str] = {}
    for chunk in queries.chunks(list(probes), PROBES_AT_ONCE):
        request = CreateTopicsRequest(
            topics=[_probe(name, *probes[name]) for name in chunk], validate_only=True
        )
        answer = await link.call(request, CreateTopicsResponse)
        for topic in answer.topics:
            if topic.error_code:
                reason = topic.error_message or ErrorCode(topic.error_code).name
                refused[probes[topic.name]] = reason.replace(topic.name, "the topic")
    return refused


def _probe(name: str, setting: str, value: str) -> CreatableTopic:
    configs = [CreatableTopicConfig(name=setting, value=value)]
    return CreatableTopic(
        name=name, num_partitions=1, replication_factor=1, assignments=[], configs=configs
    )


async def _ask_if_offered(link: KafkaLink, request: Request, answer: type[R]) -> R | None:
    try:
        return await link.call(request, answer)
    except NotOffered:
        return None


async def _acls(link: KafkaLink, unseen: list[str]) -> int | None:
    """How many; None where the cluster has no authorizer."""
    request = DescribeAclsRequest(
        resource_type_filter=ANY,
        resource_name_filter=None,
        pattern_type_filter=ANY,
        principal_filter=None,
        host_filter=None,
        operation=ANY,
        permission_type=ANY,
    )
    answer = await _ask_if_offered(link, request, DescribeAclsResponse)
    if answer is None or answer.error_code == ErrorCode.SECURITY_DISABLED:
        return None
    if answer.error_code:
        unseen.append(_refusal("ACLs", answer.error_code))
    return sum(len(resource.acls) for resource in answer.resources)


async def _quotas(link: KafkaLink, unseen: list[str]) -> int:
    request = DescribeClientQuotasRequest(components=[], strict=False)
    answer = await _ask_if_offered(link, request, DescribeClientQuotasResponse)
    if answer is not None and answer.error_code:
        unseen.append(_refusal("quotas", answer.error_code))
    return len(answer.entries or ()) if answer is not None else 0


async def _scram_users(link: KafkaLink, unseen: list[str]) -> list[str]:
    request = DescribeUserScramCredentialsRequest(users=None)
    answer = await _ask_if_offered(link, request, DescribeUserScramCredentialsResponse)
    if answer is not None and answer.error_code:
        unseen.append(_refusal("SCRAM users", answer.error_code))
    return [item.user for item in answer.results] if answer is not None else []


def _refusal(what: str, code: int) -> str:
    return f"{what}: the cluster does not tell ({ErrorCode(code).name})"
