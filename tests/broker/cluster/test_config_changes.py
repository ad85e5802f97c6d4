"""What a change of settings leads to, without a cluster around it."""

from __future__ import annotations

import pytest

from kafkaesque.broker.cluster.rules.config_changes import (
    ConfigChange,
    ConfigOperation,
    changed_broker_configs,
    changed_topic_configs,
    given_topic_configs,
)
from kafkaesque.model.errors import ErrorCode, KafkaError
from kafkaesque.model.settings import broker_config

BROKER = broker_config({})
SET, DELETE, APPEND, SUBTRACT = (
    ConfigOperation.SET,
    ConfigOperation.DELETE,
    ConfigOperation.APPEND,
    ConfigOperation.SUBTRACT,
)

Change = tuple[str, ConfigOperation, str | None]


def topic(current: dict[str, str], *changes: Change) -> dict[str, str]:
    return changed_topic_configs(current, [ConfigChange(*change) for change in changes], BROKER)


def broker(current: dict[str, str], *changes: Change) -> dict[str, str]:
    return changed_broker_configs(current, [ConfigChange(*change) for change in changes], BROKER)


@pytest.mark.parametrize(
    ("current", "change", "after"),
    [
        ({}, ("retention.ms", SET, "5"), {"retention.ms": "5"}),
        ({"retention.ms": "5"}, ("retention.ms", SET, "6"), {"retention.ms": "6"}),
        ({"retention.ms": "5"}, ("retention.ms", DELETE, None), {}),
        ({}, ("retention.ms", DELETE, None), {}),
        ({}, ("nope", DELETE, None), {}),
        ({}, ("cleanup.policy", APPEND, "compact"), {"cleanup.policy": "delete,compact"}),
        ({}, ("cleanup.policy", APPEND, "delete"), {"cleanup.policy": "delete"}),
        (
            {"cleanup.policy": "compact, delete"},
            ("cleanup.policy", SUBTRACT, "delete"),
            {"cleanup.policy": "compact"},
        ),
        ({}, ("cleanup.policy", SUBTRACT, "delete"), {"cleanup.policy": ""}),
        ({}, ("cleanup.policy", SUBTRACT, "compact"), {"cleanup.policy": "delete"}),
    ],
)
def test_topic_change_has_its_effect(
    current: dict[str, str], change: Change, after: dict[str, str]
) -> None:
    before = dict(current)
    assert topic(current, change) == after
    assert current == before


@pytest.mark.parametrize(
    ("changes", "code", "message"),
    [
        (
            [("nope", SET, "1")],
            ErrorCode.INVALID_CONFIG,
            "Unknown topic config name: nope",
        ),
        (
            [("retention.ms", SET, "x")],
            ErrorCode.INVALID_CONFIG,
            "Invalid value x for configuration retention.ms: Not a number of type LONG",
        ),
        (
            [("retention.ms", SET, None), ("segment.ms", SET, None)],
            ErrorCode.INVALID_REQUEST,
            "Null value not supported for : retention.ms, segment.ms",
        ),
        (
            [("retention.ms", SET, "1"), ("retention.ms", DELETE, None)],
            ErrorCode.INVALID_REQUEST,
            "Error due to duplicate config keys",
        ),
        (
            [("retention.ms", APPEND, "1")],
            ErrorCode.INVALID_CONFIG,
            "Can't APPEND to key retention.ms because its type is not LIST.",
        ),
        (
            [("retention.ms", SUBTRACT, "1")],
            ErrorCode.INVALID_CONFIG,
            "Can't SUBTRACT to key retention.ms because its type is not LIST.",
        ),
        (
            [("retention.ms", ConfigOperation(9), "1")],
            ErrorCode.UNKNOWN_SERVER_ERROR,
            "Unknown config operation",
        ),
        (
            [("retention.ms", SET, "1"), ("segment.ms", SET, "0")],
            ErrorCode.INVALID_CONFIG,
            "Invalid value 0 for configuration segment.ms: Value must be at least 1",
        ),
    ],
)
def test_bad_topic_change_is_refused_as_a_whole(
    changes: list[Change], code: ErrorCode, message: str
) -> None:
    with pytest.raises(KafkaError) as refused:
        topic({}, *changes)
    assert (refused.value.code, str(refused.value)) == (code, message)


def test_broker_change_of_read_only_settings_names_them_all() -> None:
    with pytest.raises(KafkaError) as refused:
        broker({}, ("num.partitions", SET, "3"), ("node.id", SET, "3"))
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert str(refused.value) == (
        "Cannot update these configs dynamically: [node.id, num.partitions]"
    )


def test_read_only_setting_of_a_broker_may_be_deleted_in_vain() -> None:
    assert broker({}, ("num.partitions", DELETE, None)) == {}


def test_bad_broker_value_has_another_code_than_a_bad_topic_value() -> None:
    with pytest.raises(KafkaError) as refused:
        broker({}, ("log.retention.ms", SET, "x"))
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert str(refused.value).endswith("Not a number of type LONG")


def test_broker_setting_that_we_do_not_honour_is_refused() -> None:
    with pytest.raises(KafkaError) as refused:
        broker({}, ("log.cleaner.threads", SET, "3"))
    assert refused.value.code is ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize("name", ["max.connections", "max.connections.per.ip"])
@pytest.mark.parametrize("value", ["-1", "0", "1"])
def test_limit_that_would_lock_administrators_out_is_refused(name: str, value: str) -> None:
    with pytest.raises(KafkaError) as refused:
        broker({}, (name, SET, value))
    assert refused.value.code is ErrorCode.INVALID_CONFIG
    assert str(refused.value) == (
        f"Invalid value {value} for configuration {name}: Value must be at least 2"
    )


def test_bad_value_that_an_older_version_stored_does_not_block_other_changes() -> None:
    stored = {"max.connections": "0"}
    assert broker(stored, ("log.retention.ms", SET, "5")) == {**stored, "log.retention.ms": "5"}
    assert broker(stored, ("max.connections", DELETE, None)) == {}
    assert broker(stored, ("max.connections", SET, "9")) == {"max.connections": "9"}


def test_append_extends_the_current_list_of_a_broker() -> None:
    assert broker({}, ("log.cleanup.policy", APPEND, "compact")) == {
        "log.cleanup.policy": "delete,compact"
    }


def test_new_topic_may_not_set_null() -> None:
    assert given_topic_configs({"retention.ms": "5"}) == {"retention.ms": "5"}
    with pytest.raises(KafkaError) as refused:
        given_topic_configs({"retention.ms": None})
    assert refused.value.code is ErrorCode.INVALID_CONFIG
    assert str(refused.value) == "Null value not supported for topic configs: retention.ms"
