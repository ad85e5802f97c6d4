from __future__ import annotations

import pytest
from tests.broker.server.local_broker import LocalBroker, every_version

from kafkaesque.model.errors import ErrorCode
from kafkaesque.wire.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
)

TOPIC, BROKER = 2, 4


def alter(
    broker: LocalBroker,
    resource_type: int,
    name: str,
    *values: tuple[str, str | None],
    validate_only: bool = False,
    version: int = 2,
    times: int = 1,
) -> list[tuple[int, str | None]]:
    resource = AlterConfigsResource(
        resource_type=resource_type,
        resource_name=name,
        configs=[AlterableConfig(name=key, value=value) for key, value in values],
    )
    request = AlterConfigsRequest(resources=[resource] * times, validate_only=validate_only)
    return [(row.error_code, row.error_message) for row in broker.ask(request, version).responses]


@pytest.mark.parametrize("version", every_version(AlterConfigsRequest))
def test_settings_that_are_not_named_return_to_their_defaults(
    broker: LocalBroker, version: int
) -> None:
    broker.create("a", retention_ms="5")
    assert alter(broker, TOPIC, "a", ("segment.ms", "7"), version=version) == [
        (ErrorCode.NONE, None)
    ]
    config = broker.partition("a").config
    assert (config.retention_ms, config.segment_ms) == (604_800_000, 7)


def test_settings_of_a_broker_are_replaced_too(broker: LocalBroker) -> None:
    alter(broker, BROKER, "1", ("message.max.bytes", "2000"))
    alter(broker, BROKER, "1", ("log.segment.bytes", "3000"))
    config = broker.context.config
    assert (config.message_max_bytes, config.log_segment_bytes) == (1_048_588, 3000)


def test_validation_changes_nothing(broker: LocalBroker) -> None:
    broker.create("a", retention_ms="5")
    assert alter(broker, TOPIC, "a", validate_only=True) == [(ErrorCode.NONE, None)]
    assert broker.partition("a").config.retention_ms == 5


def test_refusals_have_kafkas_codes_and_words(broker: LocalBroker) -> None:
    broker.create("a", retention_ms="5")
    assert alter(broker, TOPIC, "a", ("segment.ms", None)) == [
        (ErrorCode.INVALID_REQUEST, "Null value not supported for : segment.ms")
    ]
    assert alter(broker, TOPIC, "a", ("segment.ms", "1"), ("segment.ms", "2")) == [
        (ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    ]
    assert alter(broker, TOPIC, "a", ("nope", "1")) == [
        (ErrorCode.INVALID_CONFIG, "Unknown topic config name: nope")
    ]
    assert alter(broker, TOPIC, "nope") == [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The topic 'nope' does not exist.")
    ]
    assert alter(broker, BROKER, "1", ("node.id", "1")) == [
        (ErrorCode.INVALID_REQUEST, "Cannot update these configs dynamically: [node.id]")
    ]
    assert alter(broker, 99, "1") == [(ErrorCode.INVALID_REQUEST, "Unknown resource type 99")]
    assert broker.partition("a").config.retention_ms == 5


def test_resource_named_twice_is_refused_both_times(broker: LocalBroker) -> None:
    """Apache Kafka 4.3 never answers this one."""
    broker.create("a")
    twice = (ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
    assert alter(broker, TOPIC, "a", ("retention.ms", "5"), times=2) == [twice, twice]
