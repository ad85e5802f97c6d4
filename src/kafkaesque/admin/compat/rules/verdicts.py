"""Compares the features that a cluster uses with those that another one offers.

Only features that topics, groups, records and ACLs show count as used, not everything that the software
supports: a cluster that supports share groups but has none can move to a Kafka without share groups.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from kafkaesque.admin.compat.rules.apache_kafka import (
    APACHE_APIS,
    APACHE_NAME,
    APACHE_TOPIC_SETTINGS,
    API_NAMES,
    CLIENT_APIS,
)
from kafkaesque.model.settings import BROKER_SETTINGS
from kafkaesque.wire.api import ApiKey
from kafkaesque.wire.table import Versions

Status = Literal["ok", "lacking", "unknown"]
NAMES_SHOWN_MAX = 3
FETCH_VERSION_WITH_TOPIC_IDS = 13
RECORD_FORMAT = 2
"""The record format since Kafka 0.11; Kafka 4 has no other."""


class TopicUse(NamedTuple):
    """A topic and its own settings, without defaults."""

    name: str
    replication_factor: int
    settings: Mapping[str, str]


class GroupUse(NamedTuple):
    """A group; `kind` is classic, consumer, share or streams."""

    name: str
    kind: str
    has_static_members: bool


class BatchUse(NamedTuple):
    """Facts from the header of a sampled batch."""

    topic: str
    magic: int
    codec: str
    is_idempotent: bool
    is_transactional: bool


@dataclass(frozen=True, slots=True)
class Usage:
    """The features that the cluster to be moved uses."""

    apis: Mapping[int, Versions]
    topics: Sequence[TopicUse] = ()
    has_topic_ids: bool = False
    groups: Sequence[GroupUse] = ()
    batches: Sequence[BatchUse] = ()
    transactional_ids: Sequence[str] = ()
    acls: int = 0
    quotas: int = 0
    scram_users: Sequence[str] = ()
    cluster_settings: Mapping[str, str] = field(default_factory=dict)
    unseen: Sequence[str] = ()
    """Sentences about what could not be examined."""


@dataclass(frozen=True, slots=True)
class Offer:
    """The features of the target. None means unknown."""

    name: str
    apis: Mapping[int, Versions]
    brokers: int | None = None
    refused: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """Topic settings (name, value) that the target rejects, with the reason."""
    broker_settings: frozenset[str] | None = None
    has_authorizer: bool = True

    def has(self, api: int, version: int = 0) -> bool:
        return api in self.apis and self.apis[api].high >= version


def known_apache_kafka(usage: Usage) -> Offer:
    """The features of any Apache Kafka 4.x. Values of settings are not checked."""
    refused = {
        (name, value): "Apache Kafka has no such setting"
        for topic in usage.topics
        for name, value in topic.settings.items()
        if name not in APACHE_TOPIC_SETTINGS
    }
    ours = {name for name, setting in BROKER_SETTINGS.items() if setting.ours}
    known = frozenset({*usage.cluster_settings, *BROKER_SETTINGS} - ours)
    return Offer(APACHE_NAME, APACHE_APIS, None, refused, known)


class FeatureVerdict(NamedTuple):
    """One feature in use, and what to do if the target lacks it."""

    feature: str
    status: Status
    text: str
    fix: str = ""


class Need(NamedTuple):
    """Requests that a feature needs, each with its lowest version."""

    apis: Mapping[int, int]
    fix: str


TRANSACTIONS = Need(
    {
        ApiKey.INIT_PRODUCER_ID: 0,
        ApiKey.ADD_PARTITIONS_TO_TXN: 0,
        ApiKey.ADD_OFFSETS_TO_TXN: 0,
        ApiKey.END_TXN: 0,
        ApiKey.TXN_OFFSET_COMMIT: 0,
    },
    "remove transactional.id from these applications and make their effects idempotent",
)
IDEMPOTENCE = Need(
    {ApiKey.INIT_PRODUCER_ID: 0},
    "set enable.idempotence=false in these producers; retries may then write duplicates",
)
STATIC_MEMBERS = Need({ApiKey.JOIN_GROUP: 5}, "remove group.instance.id from these consumers")
GROUP_KINDS = {
    "classic": Need(
        {ApiKey.JOIN_GROUP: 0, ApiKey.SYNC_GROUP: 0, ApiKey.HEARTBEAT: 0, ApiKey.LEAVE_GROUP: 0},
        "use assign() in these consumers and store their offsets elsewhere",
    ),
    "consumer": Need(
        {ApiKey.CONSUMER_GROUP_HEARTBEAT: 0}, "set group.protocol=classic in these consumers"
    ),
    "share": Need(
        {ApiKey.SHARE_GROUP_HEARTBEAT: 0, ApiKey.SHARE_FETCH: 0, ApiKey.SHARE_ACKNOWLEDGE: 0},
        "read with consumer groups instead",
    ),
    "streams": Need(
        {ApiKey.STREAMS_GROUP_HEARTBEAT: 0},
        "set group.protocol=classic in these Streams applications",
    ),
}
CODEC_NEEDS = {
    "zstd": Need(
        {ApiKey.PRODUCE: 7, ApiKey.FETCH: 10}, "set compression.type=lz4 in these producers"
    )
}
QUOTAS = Need(
    {ApiKey.DESCRIBE_CLIENT_QUOTAS: 0, ApiKey.ALTER_CLIENT_QUOTAS: 0},
    "remove the quotas, or enforce them in a proxy",
)
SCRAM = Need(
    {ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: 0, ApiKey.ALTER_USER_SCRAM_CREDENTIALS: 0},
    "give these users another kind of credentials",
)
ACLS = Need(
    {ApiKey.DESCRIBE_ACLS: 0, ApiKey.CREATE_ACLS: 0},
    "restrict access by the network or a proxy",
)


def judge(usage: Usage, offer: Offer) -> list[FeatureVerdict]:
    """A verdict for every feature in use: clients first, then data, then the cluster."""
    return [
        *_requests(usage, offer),
        *_replicas(usage, offer),
        *_topic_settings(usage, offer),
        *_records(usage, offer),
        *_producers(usage, offer),
        *_groups(usage, offer),
        *_topic_ids(usage, offer),
        *_access(usage, offer),
        *_cluster_settings(usage, offer),
        *(FeatureVerdict("not examined", "unknown", sentence) for sentence in usage.unseen),
    ]


def named(names: Sequence[str]) -> str:
    """A count and the first names: `5: a, b, c and 2 more`."""
    shown = ", ".join(names[:NAMES_SHOWN_MAX])
    more = len(names) - NAMES_SHOWN_MAX
    return f"{len(names)}: {shown}" + (f" and {more} more" if more > 0 else "")


def _met(feature: str, need: Need, text: str, offer: Offer) -> FeatureVerdict:
    lacking = [
        f"{API_NAMES[api]} v{version}" if api in offer.apis else API_NAMES[api]
        for api, version in need.apis.items()
        if not offer.has(api, version)
    ]
    if lacking:
        return FeatureVerdict(feature, "lacking", f"{text}; no {', '.join(lacking)}", need.fix)
    return FeatureVerdict(feature, "ok", text)


def _requests(usage: Usage, offer: Offer) -> Iterator[FeatureVerdict]:
    """Clients can move if both clusters have a version of each request in common: a client chooses
    versions by ApiVersions on each connection."""
    wanted = sorted(api for api in CLIENT_APIS if api in usage.apis)
    apart = [
        API_NAMES[api]
        for api in wanted
        if api not in offer.apis
        or max(usage.apis[api].low, offer.apis[api].low)
        > min(usage.apis[api].high, offer.apis[api].high)
    ]
    if apart:
        fix = "upgrade the clients that send these requests, or stop using them"
        yield FeatureVerdict("requests of clients", "lacking", f"no {', '.join(apart)}", fix)
    else:
        text = f"{len(wanted)} requests have a version in common"
        yield FeatureVerdict("requests of clients", "ok", text)


def _replicas(usage: Usage, offer: Offer) -> Iterator[FeatureVerdict]:
    factors = {topic.replication_factor for topic in usage.topics}
    if not factors:
        return
    most = max(factors)
    text = "replication factors " + ", ".join(map(str, sorted(factors)))
    if offer.brokers is None:
        yield FeatureVerdict("replicas", "ok", f"{text}: the target needs {_brokers(most)}")
    elif most > offer.brokers:
        large = [topic.name for topic in usage.topics if topic.replication_factor > offer.brokers]
        fix = f"give the target {most} brokers, or create {named(large)} with fewer replicas"
        yield FeatureVerdict(
            "replicas", "lacking", f"{text}; it has {_brokers(offer.brokers)}", fix
        )
    else:
        yield FeatureVerdict("replicas", "ok", f"{text}; it has {_brokers(offer.brokers)}")


def _brokers(count: int) -> str:
    return "1 broker" if count == 1 else f"{count} brokers"


def _topic_settings(usage: Usage, offer: Offer) -> Iterator[FeatureVerdict]:
    users: dict[tuple[str, str], list[str]] = {}
    for topic in usage.topics:
        for pair in topic.settings.items():
            users.setdefault(pair, []).append(topic.name)
    for (name, value), topics in sorted(users.items()):
        is_compaction = name == "cleanup.policy" and "compact" in value
        feature = "compaction" if is_compaction else "topic setting"
        text = f"{name}={value} on {named(topics)}"
        reason = offer.refused.get((name, value))
        if reason is None:
            yield FeatureVerdict(feature, "ok", text)
        else:
            fix = f"create these topics there without {name}, or with another value"
            yield FeatureVerdict(feature, "lacking", f"{text}; {reason}", fix)


def _records(usage: Usage, offer: Offer) -> Iterator[FeatureVerdict]:
    if not usage.batches:
        return
    old = sorted({batch.topic for batch in usage.batches if batch.magic < RECORD_FORMAT})
    if old:
        fix = "copy these topics with a client or a mirror, not by their files"
        yield FeatureVerdict("record format", "lacking", f"older than v2 in {named(old)}", fix)
    else:
        yield FeatureVerdict("record format", "ok", f"v2 in {len(usage.batches)} sampled batches")
    by_codec: dict[str, set[str]] = {}
    for batch in usage.batches:
        if batch.codec != "none":
            by_codec.setdefault(batch.codec, set()).add(batch.topic)
    for codec, topics in sorted(by_codec.items()):
        text = f"{codec} in {named(sorted(topics))}"
        yield _met("compression", CODEC_NEEDS.get(codec, Need({}, "")), text, offer)


def _producers(usage: Usage, offer: Offer) -> Iterator[FeatureVerdict]:
    idempotent = sorted({batch.topic for batch in usage.batches if batch.is_idempotent})
    if idempotent:
        yield _met("idempotent producers", IDEMPOTENCE, f"write {named(idempotent)}", offer)
    written = sorted({batch.topic for batch in usage.batches if batch.is_transactional})
    if usage.transactional_ids:
        text = f"transactional ids {named(sorted(usage.transactional_ids))}"
        yield _met("transactions", TRANSACTIONS, text, offer)
    elif written:
        yield _met("transactions", TRANSACTIONS, f"records in {named(written)}", offer)


def _groups(usage: Usage, offer: Offer) -> Iterator[FeatureVerdict]:
    for kind in sorted({group.kind for group in usage.groups}):
        names = sorted(group.name for group in usage.groups if group.kind == kind)
        need = GROUP_KINDS.get(kind)
        if need is None:
            yield FeatureVerdict(f"{kind} groups", "unknown", named(names))
        else:
            yield _met(f"{kind} groups", need, named(names), offer)
    static = sorted(group.name for group in usage.groups if group.has_static_members)
    if static:
        yield _met("static members", STATIC_MEMBERS, f"in groups {named(static)}", offer)


def _topic_ids(usage: Usage, offer: Offer) -> Iterator[FeatureVerdict]:
    if usage.has_topic_ids and usage.topics:
        without = (
            ""
            if offer.has(ApiKey.FETCH, FETCH_VERSION_WITH_TOPIC_IDS)
            else "; clients there use topic names"
        )
        text = f"topics have ids and get new ones on the target{without}"
        yield FeatureVerdict("topic ids", "ok", text)


def _access(usage: Usage, offer: Offer) -> Iterator[FeatureVerdict]:
    if usage.acls:
        text = f"{usage.acls} entries"
        if offer.has_authorizer:
            yield _met("ACLs", ACLS, text, offer)
        else:
            fix = "set authorizer.class.name on the target's brokers"
            yield FeatureVerdict("ACLs", "lacking", f"{text}; it has no authorizer", fix)
    if usage.quotas:
        yield _met("quotas", QUOTAS, f"{usage.quotas} entries", offer)
    if usage.scram_users:
        yield _met("SCRAM users", SCRAM, named(sorted(usage.scram_users)), offer)


def _cluster_settings(usage: Usage, offer: Offer) -> Iterator[FeatureVerdict]:
    for name, value in sorted(usage.cluster_settings.items()):
        text = f"{name}={value}"
        if offer.broker_settings is None or name in offer.broker_settings:
            yield FeatureVerdict("cluster setting", "ok", text)
        else:
            fix = f"move without {name}: the target does not have this setting"
            yield FeatureVerdict("cluster setting", "lacking", text, fix)
