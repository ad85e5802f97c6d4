from __future__ import annotations

from typing import Any

import pytest
from tests.broker.server.conftest import MakeBroker
from tests.broker.server.local_broker import LocalBroker, every_version

from kafkaesque.broker.cluster.rules.commands import SetBrokerConfigs
from kafkaesque.model.errors import ErrorCode
from kafkaesque.model.settings import BROKER_SETTINGS, TOPIC_SETTINGS
from kafkaesque.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)

TOPIC, BROKER = 2, 4


def describe(
    broker: LocalBroker,
    resource_type: int,
    name: str,
    *keys: str,
    version: int = 4,
    **more: bool,
) -> Any:
    resource = DescribeConfigsResource(
        resource_type=resource_type, resource_name=name, configuration_keys=list(keys) or None
    )
    (result,) = broker.ask(DescribeConfigsRequest(resources=[resource], **more), version).results
    assert (result.resource_type, result.resource_name) == (resource_type, name)
    return result


def refusal(broker: LocalBroker, resource_type: int, name: str) -> tuple[int, str]:
    result = describe(broker, resource_type, name)
    assert result.configs == []
    return result.error_code, result.error_message


@pytest.mark.parametrize("version", every_version(DescribeConfigsRequest))
def test_topic_lists_every_setting_sorted_by_name(broker: LocalBroker, version: int) -> None:
    broker.create("a", retention_ms="5")
    result = describe(broker, TOPIC, "a", version=version)
    assert (result.error_code, result.error_message) == (ErrorCode.NONE, "")
    assert [item.name for item in result.configs] == sorted(TOPIC_SETTINGS)
    configs = {item.name: item for item in result.configs}
    assert (configs["retention.ms"].value, configs["retention.ms"].config_source) == ("5", 1)
    assert (configs["cleanup.policy"].value, configs["cleanup.policy"].config_source) == (
        "delete",
        5,
    )
    assert configs["retention.ms"].config_type == (5 if version >= 3 else 0)
    assert not any(item.synonyms or item.read_only for item in result.configs)


@pytest.mark.parametrize("version", every_version(DescribeConfigsRequest))
def test_broker_lists_every_setting_sorted_by_name(broker: LocalBroker, version: int) -> None:
    result = describe(broker, BROKER, "1", version=version)
    assert [item.name for item in result.configs] == sorted(BROKER_SETTINGS)
    configs = {item.name: item for item in result.configs}
    assert configs["num.partitions"].read_only
    assert not configs["log.retention.ms"].read_only


def test_filter_leaves_out_configs_that_are_not_named_or_unknown(broker: LocalBroker) -> None:
    broker.create("a")
    result = describe(broker, TOPIC, "a", "retention.ms", "nope", "cleanup.policy")
    assert [item.name for item in result.configs] == ["cleanup.policy", "retention.ms"]


def test_empty_filter_is_no_filter(broker: LocalBroker) -> None:
    broker.create("a")
    resource = DescribeConfigsResource(
        resource_type=TOPIC, resource_name="a", configuration_keys=[]
    )
    (result,) = broker.ask(DescribeConfigsRequest(resources=[resource]), 4).results
    assert len(result.configs) == len(TOPIC_SETTINGS)


def test_documentation_is_included_on_request(broker: LocalBroker) -> None:
    broker.create("a")
    (entry,) = describe(broker, TOPIC, "a", "retention.ms").configs
    assert entry.documentation is None
    (entry,) = describe(broker, TOPIC, "a", "retention.ms", include_documentation=True).configs
    assert entry.documentation == TOPIC_SETTINGS["retention.ms"].doc


def test_synonyms_are_included_on_request(broker: LocalBroker) -> None:
    broker.create("a", segment_bytes="1000")
    (entry,) = describe(broker, TOPIC, "a", "segment.bytes", include_synonyms=True).configs
    assert [(item.name, item.value, item.source) for item in entry.synonyms] == [
        ("segment.bytes", "1000", 1),
        ("log.segment.bytes", "1073741824", 5),
    ]


def test_cluster_default_lists_only_configs_changed_for_all_brokers(
    broker: LocalBroker,
) -> None:
    assert describe(broker, BROKER, "").configs == []
    broker.context.cluster.tables.apply(SetBrokerConfigs(None, {"log.retention.ms": "7"}))
    (entry,) = describe(broker, BROKER, "", include_synonyms=True).configs
    assert (entry.name, entry.value, entry.config_source) == ("log.retention.ms", "7", 3)
    assert [(item.name, item.source) for item in entry.synonyms] == [("log.retention.ms", 3)]


def test_unknown_resources_are_refused_in_kafkas_words(broker: LocalBroker) -> None:
    assert refusal(broker, TOPIC, "nope") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
    assert refusal(broker, TOPIC, "bad name")[0] == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert refusal(broker, TOPIC, "") == (
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        "Topic name is invalid: the empty string is not allowed",
    )
    assert refusal(broker, BROKER, "77") == (
        ErrorCode.INVALID_REQUEST,
        "Unexpected broker id, expected 1 or empty string, but received 77",
    )
    assert refusal(broker, BROKER, "abc") == (
        ErrorCode.INVALID_REQUEST,
        "Broker id must be an integer, but it is: abc",
    )


@pytest.mark.parametrize("resource_type", [0, 8, 16, 32, 99])
def test_resource_types_that_we_do_not_have_are_refused(
    broker: LocalBroker, resource_type: int
) -> None:
    assert refusal(broker, resource_type, "1")[0] == ErrorCode.INVALID_REQUEST


def test_every_resource_has_its_own_result_in_the_requested_order(broker: LocalBroker) -> None:
    broker.create("a")
    resources = [
        DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
        for kind, name in [(TOPIC, "nope"), (BROKER, "1"), (TOPIC, "a"), (TOPIC, "a")]
    ]
    results = broker.ask(DescribeConfigsRequest(resources=resources), 4).results
    assert [(item.resource_name, item.error_code) for item in results] == [
        ("nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("1", ErrorCode.NONE),
        ("a", ErrorCode.NONE),
        ("a", ErrorCode.NONE),
    ]


def test_value_given_at_the_start_is_static(make_broker: MakeBroker) -> None:
    broker = make_broker(num_partitions="3")
    (entry,) = describe(broker, BROKER, "1", "num.partitions", include_synonyms=True).configs
    assert (entry.value, entry.config_source) == ("3", 4)
    assert [(item.value, item.source) for item in entry.synonyms] == [("3", 4), ("1", 5)]
