"""Verdicts by tables: the features in use on one side, the offer of the other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafkaesque.admin.compat.rules.apache_kafka import APACHE_APIS
from kafkaesque.admin.compat.rules.verdicts import (
    BatchUse,
    FeatureVerdict,
    GroupUse,
    Offer,
    TopicUse,
    Usage,
    judge,
    known_apache_kafka,
    named,
)
from kafkaesque.wire.table import Versions

PLAIN = TopicUse("orders", 1, {})
EMPTY = Usage(apis=APACHE_APIS)
OFFER = Offer("target", APACHE_APIS, brokers=1, broker_settings=frozenset({"log.retention.ms"}))


def without(*apis: int) -> dict[int, Versions]:
    return {key: value for key, value in APACHE_APIS.items() if key not in apis}


def batch(*, magic: int = 2, codec: str = "none", is_idempotent: bool = False,
          is_transactional: bool = False) -> BatchUse:  # fmt: skip
    return BatchUse("orders", magic, codec, is_idempotent, is_transactional)


def lacking(usage: Usage, offer: Offer) -> list[FeatureVerdict]:
    return [verdict for verdict in judge(usage, offer) if verdict.status == "lacking"]


USES: dict[str, tuple[Usage, Offer]] = {
    "replicas": (replace(EMPTY, topics=[TopicUse("orders", 3, {})]), OFFER),
    "compaction": (
        replace(EMPTY, topics=[TopicUse("orders", 1, {"cleanup.policy": "compact"})]),
        replace(OFFER, refused={("cleanup.policy", "compact"): "not here"}),
    ),
    "topic setting": (
        replace(EMPTY, topics=[TopicUse("orders", 1, {"retention.ms": "5"})]),
        replace(OFFER, refused={("retention.ms", "5"): "too short"}),
    ),
    "record format": (replace(EMPTY, batches=[batch(magic=1)]), OFFER),
    "compression": (
        replace(EMPTY, batches=[batch(codec="zstd")]),
        replace(OFFER, apis=APACHE_APIS | {1: Versions(4, 9)}),
    ),
    "idempotent producers": (
        replace(EMPTY, apis=without(22), batches=[batch(is_idempotent=True)]),
        replace(OFFER, apis=without(22)),
    ),
    "transactions": (
        replace(EMPTY, transactional_ids=["mover"]),
        replace(OFFER, apis=without(26)),
    ),
    "classic groups": (
        replace(EMPTY, apis=without(11), groups=[GroupUse("g", "classic", False)]),
        replace(OFFER, apis=without(11)),
    ),
    "consumer groups": (
        replace(EMPTY, groups=[GroupUse("g", "consumer", False)]),
        replace(OFFER, apis=without(68)),
    ),
    "share groups": (
        replace(EMPTY, groups=[GroupUse("g", "share", False)]),
        replace(OFFER, apis=without(78)),
    ),
    "streams groups": (
        replace(EMPTY, groups=[GroupUse("g", "streams", False)]),
        replace(OFFER, apis=without(88)),
    ),
    "static members": (
        replace(EMPTY, groups=[GroupUse("g", "classic", True)]),
        replace(OFFER, apis=APACHE_APIS | {11: Versions(0, 4)}),
    ),
    "quotas": (replace(EMPTY, quotas=2), replace(OFFER, apis=without(48))),
    "SCRAM users": (replace(EMPTY, scram_users=["ann"]), replace(OFFER, apis=without(51))),
    "cluster setting": (replace(EMPTY, cluster_settings={"flush": "never"}), OFFER),
}


@pytest.mark.parametrize("feature", USES)
def test_feature_that_the_target_lacks_is_listed_with_a_fix(feature: str) -> None:
    (verdict,) = lacking(*USES[feature])
    assert verdict.feature == feature
    assert verdict.fix


@pytest.mark.parametrize("feature", USES)
def test_feature_that_is_not_in_use_is_not_required(feature: str) -> None:
    _, offer = USES[feature]
    assert lacking(replace(EMPTY, apis=offer.apis, topics=[PLAIN]), offer) == []


def test_target_with_everything_lacks_nothing() -> None:
    usage = replace(
        EMPTY,
        topics=[PLAIN, TopicUse("kept", 3, {"cleanup.policy": "compact"})],
        has_topic_ids=True,
        groups=[GroupUse("a", "classic", True), GroupUse("b", "consumer", False)],
        batches=[batch(codec="zstd", is_idempotent=True, is_transactional=True)],
        acls=3,
        cluster_settings={"log.retention.ms": "5"},
    )
    assert {verdict.status for verdict in judge(usage, replace(OFFER, brokers=3))} == {"ok"}


def test_acls_need_an_authorizer() -> None:
    usage = replace(EMPTY, acls=1)
    (verdict,) = lacking(usage, replace(OFFER, has_authorizer=False))
    assert "authorizer.class.name" in verdict.fix
    assert lacking(usage, OFFER) == []


def test_requests_without_a_common_version_are_named() -> None:
    usage = replace(EMPTY, apis={0: Versions(0, 2), 3: Versions(0, 5)})
    offer = replace(OFFER, apis={0: Versions(3, 9), 3: Versions(5, 9)})
    (verdict,) = lacking(usage, offer)
    assert verdict.text == "no Produce"


def test_transactions_are_found_in_records_without_a_listed_id() -> None:
    usage = replace(EMPTY, batches=[batch(is_transactional=True)])
    (verdict,) = lacking(usage, replace(OFFER, apis=without(28)))
    assert "TxnOffsetCommit" in verdict.text


def test_group_of_an_unknown_kind_has_an_unknown_verdict() -> None:
    usage = replace(EMPTY, groups=[GroupUse("g", "flock", False)])
    assert FeatureVerdict("flock groups", "unknown", "1: g") in judge(usage, OFFER)


def test_apache_kafka_lacks_our_own_settings() -> None:
    topics = [TopicUse("orders", 1, {"shine": "yes", "retention.ms": "1"})]
    usage = replace(EMPTY, topics=topics, cluster_settings={"flush": "never", "log.dirs": "/x"})
    found = lacking(usage, known_apache_kafka(usage))
    assert [verdict.text.split("=")[0] for verdict in found] == ["shine", "flush"]


def test_long_lists_are_shortened() -> None:
    assert named(["a", "b"]) == "2: a, b"
    assert named(list("abcde")) == "5: a, b, c and 2 more"
