"""DescribeConfigs, IncrementalAlterConfigs and AlterConfigs on the wire."""

from __future__ import annotations

from typing import Any

import pytest
from tests.conformance.batches import Record, encode
from tests.conformance.conftest import Topics
from tests.conformance.fetching import produce
from tests.conformance.raw import RawClient
from tests.waiting import eventually_passes

from kafkaesque.model.errors import ErrorCode

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
FROM_TOPIC, FROM_FILE, FROM_DEFAULT = 1, 4, 5
STRING, INT, LONG, LIST = 2, 3, 5, 7


def describe(
    raw: RawClient,
    name: str,
    keys: list[str] | None = None,
    *,
    kind: int = TOPIC,
    version: int = 4,
    **options: bool,
) -> dict[str, Any]:
    row = {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
    (answer,) = raw.call("describe_configs", version, resources=[row], **options)["results"]
    found: dict[str, Any] = answer
    return found


def configs(raw: RawClient, name: str, *keys: str, **options: Any) -> dict[str, dict[str, Any]]:
    answer = describe(raw, name, list(keys) or None, **options)
    assert answer["error_code"] == ErrorCode.NONE, answer
    return {row["name"]: row for row in answer["configs"]}


def alter(
    raw: RawClient,
    name: str,
    *changes: tuple[str, int, str | None],
    kind: int = TOPIC,
    validate_only: bool = False,
) -> tuple[int, str | None]:
    rows = [
        {"name": key, "config_operation": operation, "value": value}
        for key, operation, value in changes
    ]
    (answer,) = raw.call(
        "incremental_alter_configs",
        1,
        resources=[{"resource_type": kind, "resource_name": name, "configs": rows}],
        validate_only=validate_only,
    )["responses"]
    return answer["error_code"], answer["error_message"]


def becomes(raw: RawClient, topic: str, key: str, value: str, source: int) -> None:
    """In Apache Kafka, DescribeConfigs returns a change a moment after it was acknowledged."""

    def shown() -> None:
        row = configs(raw, topic, key)[key]
        assert (row["value"], row["config_source"]) == (value, source)

    eventually_passes(shown)


@pytest.mark.parametrize(
    ("name", "default", "kind"),
    [
        ("cleanup.policy", "delete", LIST),
        ("compression.type", "producer", STRING),
        ("max.message.bytes", "1048588", INT),
        ("message.timestamp.type", "CreateTime", STRING),
        ("retention.bytes", "-1", LONG),
        ("retention.ms", "604800000", LONG),
        ("segment.bytes", "1073741824", INT),
        ("segment.ms", "604800000", LONG),
    ],
)
def test_topic_defaults_have_kafkas_values_and_types(
    raw: RawClient, topic: str, name: str, default: str, kind: int
) -> None:
    row = configs(raw, topic)[name]
    assert (row["value"], row["config_type"]) == (default, kind)
    assert row["config_source"] == FROM_DEFAULT
    assert not row["read_only"]
    assert not row["is_sensitive"]


def test_synonyms_and_documentation_only_on_request(raw: RawClient, topic: str) -> None:
    bare = configs(raw, topic, "max.message.bytes")["max.message.bytes"]
    assert bare["synonyms"] == []
    assert bare["documentation"] is None
    full = configs(
        raw, topic, "max.message.bytes", include_synonyms=True, include_documentation=True
    )["max.message.bytes"]
    assert full["synonyms"] == [
        {"name": "message.max.bytes", "value": "1048588", "source": FROM_DEFAULT}
    ]
    assert len(full["documentation"]) > 20


def test_only_requested_keys_are_returned_and_unknown_ones_ignored(
    raw: RawClient, topic: str
) -> None:
    assert set(configs(raw, topic, "retention.ms", "nope")) == {"retention.ms"}
    everything = configs(raw, topic)
    answer = describe(raw, topic, [])
    assert {row["name"] for row in answer["configs"]} == set(everything)


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_every_describe_version(raw: RawClient, topic: str, version: int) -> None:
    row = configs(raw, topic, "retention.ms", version=version)["retention.ms"]
    assert (row["value"], row["config_source"]) == ("604800000", FROM_DEFAULT)


def test_set_and_delete_one_value(raw: RawClient, topic: str) -> None:
    assert alter(raw, topic, ("retention.ms", SET, "5000")) == (ErrorCode.NONE, None)
    becomes(raw, topic, "retention.ms", "5000", FROM_TOPIC)
    synonyms = configs(raw, topic, "retention.ms", include_synonyms=True)["retention.ms"][
        "synonyms"
    ]
    assert synonyms[0] == {"name": "retention.ms", "value": "5000", "source": FROM_TOPIC}
    assert alter(raw, topic, ("retention.ms", DELETE, None)) == (ErrorCode.NONE, None)
    becomes(raw, topic, "retention.ms", "604800000", FROM_DEFAULT)
    assert alter(raw, topic, ("retention.ms", DELETE, None)) == (ErrorCode.NONE, None)


def test_append_to_and_subtract_from_a_list(raw: RawClient, topic: str) -> None:
    for _ in range(2):
        assert alter(raw, topic, ("cleanup.policy", APPEND, "compact")) == (ErrorCode.NONE, None)
        becomes(raw, topic, "cleanup.policy", "delete,compact", FROM_TOPIC)
    assert alter(raw, topic, ("cleanup.policy", SUBTRACT, "delete")) == (ErrorCode.NONE, None)
    becomes(raw, topic, "cleanup.policy", "compact", FROM_TOPIC)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        pytest.param([("nope", SET, "1")], ErrorCode.INVALID_CONFIG, id="unknown name"),
        pytest.param([("retention.ms", SET, "abc")], ErrorCode.INVALID_CONFIG, id="not a number"),
        pytest.param([("retention.ms", SET, None)], ErrorCode.INVALID_REQUEST, id="null"),
        pytest.param(
            [("retention.ms", APPEND, "1")], ErrorCode.INVALID_CONFIG, id="append to a number"
        ),
        pytest.param(
            [("retention.ms", SET, "1"), ("retention.ms", SET, "2")],
            ErrorCode.INVALID_REQUEST,
            id="the same key twice",
        ),
        pytest.param(
            [("retention.ms", SET, "888"), ("segment.bytes", SET, "x")],
            ErrorCode.INVALID_CONFIG,
            id="one of two",
        ),
    ],
)
def test_refused_change_changes_nothing(
    raw: RawClient, topic: str, changes: list[tuple[str, int, str | None]], code: int
) -> None:
    answer, message = alter(raw, topic, *changes)
    assert (answer, bool(message)) == (code, True)
    assert configs(raw, topic, "retention.ms")["retention.ms"]["config_source"] == FROM_DEFAULT


def test_validate_only_changes_nothing(raw: RawClient, topic: str) -> None:
    assert alter(raw, topic, ("retention.ms", SET, "777"), validate_only=True) == (
        ErrorCode.NONE,
        None,
    )
    assert configs(raw, topic, "retention.ms")["retention.ms"]["value"] == "604800000"


def test_unknown_resources(raw: RawClient, topics: Topics) -> None:
    absent = topics.name()
    assert describe(raw, absent)["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert alter(raw, absent, ("retention.ms", SET, "1"))[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert describe(raw, "bad name")["error_code"] == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert describe(raw, "99999", kind=BROKER)["error_code"] == ErrorCode.INVALID_REQUEST
    assert describe(raw, "abc", kind=BROKER)["error_code"] == ErrorCode.INVALID_REQUEST
    assert describe(raw, "x", kind=3)["error_code"] == ErrorCode.INVALID_REQUEST


def test_alter_configs_replaces_the_whole_set(raw: RawClient, topics: Topics) -> None:
    topic = topics.create(retention_ms="5000")
    row = {
        "resource_type": TOPIC,
        "resource_name": topic,
        "configs": [{"name": "segment.ms", "value": "100000"}],
    }
    (answer,) = raw.call("alter_configs", 2, resources=[row])["responses"]
    assert answer["error_code"] == ErrorCode.NONE
    becomes(raw, topic, "segment.ms", "100000", FROM_TOPIC)
    becomes(raw, topic, "retention.ms", "604800000", FROM_DEFAULT)


def broker_name(raw: RawClient) -> str:
    return str(raw.call("metadata", 12, topics=[])["brokers"][0]["node_id"])


def test_broker_settings_have_their_source(raw: RawClient) -> None:
    found = configs(raw, broker_name(raw), kind=BROKER, include_synonyms=True)
    limit = found["message.max.bytes"]
    assert (limit["value"], limit["config_type"], limit["config_source"]) == (
        "1048588",
        INT,
        FROM_DEFAULT,
    )
    partitions = found["num.partitions"]
    assert partitions["read_only"]
    assert partitions["synonyms"][-1] == {
        "name": "num.partitions",
        "value": "1",
        "source": FROM_DEFAULT,
    }


def test_read_only_broker_setting_cannot_be_changed(raw: RawClient) -> None:
    code, message = alter(raw, broker_name(raw), ("num.partitions", SET, "5"), kind=BROKER)
    assert code == ErrorCode.INVALID_REQUEST
    assert "num.partitions" in (message or "")


def test_topic_limit_set_later_is_enforced(raw: RawClient, topic: str) -> None:
    large = encode([Record(b"k", b"x" * 5000)])
    assert produce(raw, topic, large)["error_code"] == ErrorCode.NONE
    alter(raw, topic, ("max.message.bytes", SET, "1000"))

    def enforced() -> None:
        assert produce(raw, topic, large)["error_code"] == ErrorCode.MESSAGE_TOO_LARGE

    eventually_passes(enforced)
