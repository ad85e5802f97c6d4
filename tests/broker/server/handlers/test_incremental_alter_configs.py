from __future__ import annotations

import pytest
from tests.broker.server.conftest import MakeBroker
from tests.broker.server.local_broker import LocalBroker, every_version

from kafkaesque.model.errors import ErrorCode
from kafkaesque.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3

Change = tuple[str, int, str | None]


def resource(resource_type: int, name: str, *changes: Change) -> AlterConfigsResource:
    return AlterConfigsResource(
        resource_type=resource_type,
        resource_name=name,
        configs=[
            AlterableConfig(name=key, config_operation=operation, value=value)
            for key, operation, value in changes
        ],
    )


def alter(
    broker: LocalBroker,
    *resources: AlterConfigsResource,
    validate_only: bool = False,
    version: int = 1,
) -> list[tuple[int, str | None]]:
    request = IncrementalAlterConfigsRequest(resources=list(resources), validate_only=validate_only)
    responses = broker.ask(request, version).responses
    assert [(row.resource_type, row.resource_name) for row in responses] == [
        (item.resource_type, item.resource_name) for item in resources
    ]
    return [(row.error_code, row.error_message) for row in responses]


@pytest.mark.parametrize("version", every_version(IncrementalAlterConfigsRequest))
def test_changed_setting_of_a_topic_holds_at_once_and_the_others_stay(
    broker: LocalBroker, version: int
) -> None:
    broker.create("a", retention_ms="5")
    change = resource(TOPIC, "a", ("segment.ms", SET, "7"), ("cleanup.policy", APPEND, "compact"))
    assert alter(broker, change, version=version) == [(ErrorCode.NONE, None)]
    config = broker.partition("a").config
    assert (config.retention_ms, config.segment_ms) == (5, 7)
    assert config.cleanup_policy == ("delete", "compact")


def test_deleted_setting_returns_to_the_brokers(broker: LocalBroker) -> None:
    broker.create("a", retention_ms="5")
    alter(broker, resource(TOPIC, "a", ("retention.ms", DELETE, None)))
    assert broker.partition("a").config.retention_ms == 604_800_000


def test_validation_changes_nothing(broker: LocalBroker) -> None:
    broker.create("a")
    good = resource(TOPIC, "a", ("retention.ms", SET, "5"))
    assert alter(broker, good, validate_only=True) == [(ErrorCode.NONE, None)]
    bad = resource(TOPIC, "a", ("retention.ms", SET, "x"))
    assert alter(broker, bad, validate_only=True)[0][0] == ErrorCode.INVALID_CONFIG
    assert broker.context.cluster.tables.by_name["a"].configs == {}


def test_resource_is_changed_as_a_whole_or_not_at_all_and_on_its_own(broker: LocalBroker) -> None:
    broker.create("a")
    broker.create("b")
    results = alter(
        broker,
        resource(TOPIC, "a", ("retention.ms", SET, "5"), ("segment.ms", SET, "0")),
        resource(TOPIC, "b", ("retention.ms", SET, "5")),
    )
    assert [code for code, _ in results] == [ErrorCode.INVALID_CONFIG, ErrorCode.NONE]
    assert broker.partition("a").config.retention_ms == 604_800_000
    assert broker.partition("b").config.retention_ms == 5


def test_resource_named_twice_is_refused_both_times(broker: LocalBroker) -> None:
    broker.create("a")
    change = resource(TOPIC, "a", ("retention.ms", SET, "5"))
    twice = (ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
    assert alter(broker, change, change) == [twice, twice]
    assert broker.context.cluster.tables.by_name["a"].configs == {}


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        (
            resource(TOPIC, "nope", ("retention.ms", SET, "5")),
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "The topic 'nope' does not exist.",
        ),
        (
            resource(TOPIC, "", ("retention.ms", SET, "5")),
            ErrorCode.INVALID_REQUEST,
            "Default topic resources are not allowed.",
        ),
        (
            resource(BROKER, "77", ("log.retention.ms", SET, "5")),
            ErrorCode.INVALID_REQUEST,
            "Unexpected broker id, expected 1, but received 77",
        ),
        (
            resource(BROKER, "abc", ("log.retention.ms", SET, "5")),
            ErrorCode.INVALID_REQUEST,
            "Node id must be an integer, but it is: abc",
        ),
        (
            resource(BROKER, "1", ("num.partitions", SET, "5")),
            ErrorCode.INVALID_REQUEST,
            "Cannot update these configs dynamically: [num.partitions]",
        ),
        (resource(99, "1", ("x", SET, "5")), ErrorCode.INVALID_REQUEST, "Unknown resource type 99"),
        (resource(8, "1", ("x", SET, "5")), ErrorCode.INVALID_REQUEST, "Unknown resource type 8"),
        (
            resource(TOPIC, "a", ("retention.ms", 9, "5")),
            ErrorCode.UNKNOWN_SERVER_ERROR,
            "Unknown config operation",
        ),
    ],
)
def test_refusal_has_kafkas_code_and_words(
    broker: LocalBroker, change: AlterConfigsResource, code: int, message: str
) -> None:
    broker.create("a")
    assert alter(broker, change) == [(code, message)]


def test_illegal_topic_name_is_refused(broker: LocalBroker) -> None:
    ((code, _),) = alter(broker, resource(TOPIC, "bad name", ("retention.ms", SET, "5")))
    assert code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_value_of_one_broker_overrides_the_cluster_default(broker: LocalBroker) -> None:
    broker.create("a")
    alter(broker, resource(BROKER, "", ("log.retention.ms", SET, "7")))
    assert broker.partition("a").config.retention_ms == 7
    alter(broker, resource(BROKER, "1", ("log.retention.ms", SET, "8")))
    assert broker.partition("a").config.retention_ms == 8
    alter(broker, resource(BROKER, "1", ("log.retention.ms", DELETE, None)))
    assert broker.partition("a").config.retention_ms == 7


def test_changes_hold_after_a_restart(make_broker: MakeBroker) -> None:
    with make_broker() as broker:
        broker.create("a")
        alter(
            broker,
            resource(TOPIC, "a", ("retention.ms", SET, "5")),
            resource(BROKER, "1", ("message.max.bytes", SET, "2000")),
        )
    config = make_broker().partition("a").config
    assert (config.retention_ms, config.max_message_bytes) == (5, 2000)
