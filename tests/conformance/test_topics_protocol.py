"""Metadata, CreateTopics, DeleteTopics, CreatePartitions and the describe calls on the wire."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from tests.conformance.batches import Record, encode
from tests.conformance.conftest import Topics
from tests.conformance.fetching import fetch, produce
from tests.conformance.raw import RawClient
from tests.waiting import eventually_passes

from kafkaesque.model.errors import ErrorCode


def metadata(raw: RawClient, name: str, *, create: bool = False) -> dict[str, Any]:
    (row,) = raw.call(
        "metadata",
        12,
        topics=[{"name": name, "topic_id": None}],
        allow_auto_topic_creation=create,
    )["topics"]
    found: dict[str, Any] = row
    return found


def create(raw: RawClient, name: str, *, validate_only: bool = False, **row: Any) -> dict[str, Any]:
    topic = {"name": name, "num_partitions": -1, "replication_factor": -1} | row
    (answer,) = raw.call(
        "create_topics", 7, timeout=10_000, topics=[topic], validate_only=validate_only
    )["topics"]
    found: dict[str, Any] = answer
    return found


def test_metadata_creates_a_topic_on_request(raw: RawClient, topics: Topics) -> None:
    name = topics.name("auto")
    assert metadata(raw, name)["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    metadata(raw, name, create=True)

    def created() -> dict[str, Any]:
        row = metadata(raw, name)
        assert row["error_code"] == ErrorCode.NONE
        return row

    row = eventually_passes(created)
    assert row["topic_id"] is not None
    assert not row["is_internal"]
    (partition,) = row["partitions"]
    assert partition["leader_epoch"] in (0, 1)  # the first one of Kafka, and of Raft
    assert partition["replica_nodes"] == partition["isr_nodes"] == [partition["leader_id"]]
    assert partition["offline_replicas"] == []


def test_metadata_without_permission_creates_nothing(raw: RawClient, topics: Topics) -> None:
    name = topics.name()
    for _ in range(3):
        row = metadata(raw, name)
        assert (row["error_code"], row["topic_id"], row["partitions"]) == (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            None,
            [],
        )


@pytest.mark.parametrize("name", ["bad name!", "", "x" * 250, ".", ".."])
def test_invalid_names_are_refused(raw: RawClient, name: str) -> None:
    if name not in (".", ".."):
        assert metadata(raw, name, create=True)["error_code"] == ErrorCode.INVALID_TOPIC_EXCEPTION
    answer = create(raw, name)
    assert answer["error_code"] == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert answer["error_message"].startswith("Topic name is invalid")


def test_metadata_by_id(raw: RawClient, topic: str, topics: Topics) -> None:
    def ask(topic_id: uuid.UUID) -> dict[str, Any]:
        (row,) = raw.call("metadata", 12, topics=[{"name": None, "topic_id": topic_id}])["topics"]
        found: dict[str, Any] = row
        return found

    assert ask(topics.id_of(topic))["name"] == topic
    unknown = ask(uuid.uuid4())
    assert (unknown["error_code"], unknown["name"]) == (ErrorCode.UNKNOWN_TOPIC_ID, None)


def test_metadata_of_none_and_of_all(raw: RawClient, topic: str) -> None:
    assert raw.call("metadata", 1, topics=[])["topics"] == []
    assert topic in {row["name"] for row in raw.call("metadata", 1, topics=None)["topics"]}
    # In version 0 an empty list meant all.
    assert topic in {row["name"] for row in raw.call("metadata", 0, topics=[])["topics"]}


@pytest.mark.parametrize("version", range(14))
def test_every_metadata_version_names_the_brokers(raw: RawClient, topic: str, version: int) -> None:
    row = {"name": topic} if version < 10 else {"name": topic, "topic_id": None}
    answer = raw.call("metadata", version, topics=[row])
    (broker,) = answer["brokers"]
    (found,) = answer["topics"]
    assert found["partitions"][0]["leader_id"] == broker["node_id"]
    if version >= 1:
        assert answer["controller_id"] == broker["node_id"]
    if version >= 2:
        assert answer["cluster_id"]


def test_authorized_operations_only_on_request(raw: RawClient, topic: str) -> None:
    def ask(wanted: bool) -> tuple[int, int]:
        answer = raw.call(
            "metadata",
            10,
            topics=[{"name": topic, "topic_id": None}],
            include_topic_authorized_operations=wanted,
            include_cluster_authorized_operations=wanted,
        )
        operations = answer["topics"][0]["topic_authorized_operations"]
        return operations, answer["cluster_authorized_operations"]

    assert ask(False) == (-(2**31), -(2**31))
    assert ask(True) == (3576, 8096)


def test_created_topic_is_answered_with_its_shape(raw: RawClient, topics: Topics) -> None:
    name = topics.name()
    answer = create(
        raw, name, num_partitions=3, configs=[{"name": "retention.ms", "value": "1000"}]
    )
    assert answer["error_code"] == ErrorCode.NONE
    assert answer["topic_id"] is not None
    assert (answer["num_partitions"], answer["replication_factor"]) == (3, 1)
    configs = {row["name"]: row for row in answer["configs"]}
    assert list(configs) == sorted(configs)
    assert (configs["retention.ms"]["value"], configs["retention.ms"]["config_source"]) == (
        "1000",
        1,
    )
    assert (configs["cleanup.policy"]["value"], configs["cleanup.policy"]["config_source"]) == (
        "delete",
        5,
    )


@pytest.mark.parametrize("version", [2, 3, 4, 5, 6, 7])
def test_every_create_version_works(raw: RawClient, topics: Topics, version: int) -> None:
    name = topics.name()
    row = {"name": name, "num_partitions": 2, "replication_factor": 1}
    (answer,) = raw.call("create_topics", version, timeout=10_000, topics=[row])["topics"]
    assert (answer["name"], answer["error_code"]) == (name, ErrorCode.NONE)
    topics.wait_for(name, 2)


def test_validate_only_creates_nothing(raw: RawClient, topics: Topics) -> None:
    name = topics.name()
    answer = create(raw, name, num_partitions=2, validate_only=True)
    assert (answer["error_code"], answer["num_partitions"]) == (ErrorCode.NONE, 2)
    assert metadata(raw, name)["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_existing_and_repeated_names_are_refused(
    raw: RawClient, topic: str, topics: Topics
) -> None:
    existing = create(raw, topic)
    assert existing["error_code"] == ErrorCode.TOPIC_ALREADY_EXISTS
    assert existing["error_message"] == f"Topic '{topic}' already exists."
    assert create(raw, topic, validate_only=True)["error_code"] == ErrorCode.TOPIC_ALREADY_EXISTS
    name = topics.name()
    row = {"name": name, "num_partitions": 1, "replication_factor": 1}
    answers = raw.call("create_topics", 7, timeout=5000, topics=[row, row])["topics"]
    assert [(a["name"], a["error_code"]) for a in answers] == [(name, ErrorCode.INVALID_REQUEST)]
    assert metadata(raw, name)["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_names_that_collide_in_metrics_are_refused(raw: RawClient, topics: Topics) -> None:
    name = topics.name()
    assert create(raw, f"{name}.a_b")["error_code"] == ErrorCode.NONE
    topics.wait_for(f"{name}.a_b")
    assert create(raw, f"{name}_a.b")["error_code"] == ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize(
    ("row", "code"),
    [
        pytest.param({"num_partitions": 0}, ErrorCode.INVALID_PARTITIONS, id="no partitions"),
        pytest.param(
            {"num_partitions": -2}, ErrorCode.INVALID_PARTITIONS, id="negative partitions"
        ),
        pytest.param(
            {"num_partitions": 1, "replication_factor": 0},
            ErrorCode.INVALID_REPLICATION_FACTOR,
            id="no replicas",
        ),
        pytest.param(
            {"num_partitions": 1, "replication_factor": 2},
            ErrorCode.INVALID_REPLICATION_FACTOR,
            id="too many replicas",
        ),
        pytest.param(
            {"configs": [{"name": "nope", "value": "1"}]},
            ErrorCode.INVALID_CONFIG,
            id="unknown config",
        ),
        pytest.param(
            {"configs": [{"name": "retention.ms", "value": "x"}]},
            ErrorCode.INVALID_CONFIG,
            id="not a number",
        ),
        pytest.param(
            {"configs": [{"name": "retention.ms", "value": None}]},
            ErrorCode.INVALID_CONFIG,
            id="null value",
        ),
        pytest.param(
            {"configs": [{"name": "cleanup.policy", "value": "x"}]},
            ErrorCode.INVALID_CONFIG,
            id="bad choice",
        ),
        pytest.param(
            {"configs": [{"name": "segment.bytes", "value": "1"}]},
            ErrorCode.INVALID_CONFIG,
            id="out of range",
        ),
        pytest.param(
            {"assignments": [{"partition_index": 0, "broker_ids": [999]}]},
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            id="unknown broker",
        ),
        pytest.param(
            {"assignments": [{"partition_index": 0, "broker_ids": []}]},
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            id="nobody",
        ),
    ],
)
def test_refused_topics_do_not_exist(
    raw: RawClient, topics: Topics, row: dict[str, Any], code: int
) -> None:
    name = topics.name()
    answer = create(raw, name, **row)
    assert (answer["error_code"], answer["num_partitions"]) == (code, -1)
    assert answer["error_message"]
    assert metadata(raw, name)["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_explicit_assignment(raw: RawClient, topics: Topics) -> None:
    broker = raw.call("metadata", 12, topics=[])["brokers"][0]["node_id"]
    rows = [{"partition_index": index, "broker_ids": [broker]} for index in range(2)]
    answer = create(raw, topics.name(), assignments=rows)
    assert (answer["error_code"], answer["num_partitions"]) == (ErrorCode.NONE, 2)
    both = create(raw, topics.name(), num_partitions=2, assignments=rows)
    assert both["error_code"] == ErrorCode.INVALID_REQUEST
    gap = create(raw, topics.name(), assignments=rows[1:])
    assert gap["error_code"] == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    twice = [{"partition_index": 0, "broker_ids": [broker, broker]}]
    assert (
        create(raw, topics.name(), assignments=twice)["error_code"]
        == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    )


def delete(raw: RawClient, *rows: dict[str, Any]) -> list[dict[str, Any]]:
    answers: list[dict[str, Any]] = raw.call("delete_topics", 6, timeout=10_000, topics=list(rows))[
        "responses"
    ]
    return answers


def test_deleted_topic_is_gone_and_its_name_is_free(raw: RawClient, topics: Topics) -> None:
    name = topics.create()
    old_id = topics.id_of(name)
    produce(raw, name, encode([Record(b"k", b"old")]))
    (answer,) = delete(raw, {"name": name, "topic_id": None})
    assert (answer["error_code"], answer["name"], answer["topic_id"]) == (
        ErrorCode.NONE,
        name,
        old_id,
    )

    def gone() -> None:
        assert metadata(raw, name)["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert (
            produce(raw, name, encode([Record(b"k", b"v")]))["error_code"]
            == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )

    eventually_passes(gone)
    assert create(raw, name)["error_code"] == ErrorCode.NONE
    topics.wait_for(name)
    assert topics.id_of(name) != old_id
    row = eventually_passes(lambda: _readable(fetch(raw, name)))
    assert (row["high_watermark"], row["records"]) == (0, b"")


def _readable(row: dict[str, Any]) -> dict[str, Any]:
    assert row["error_code"] == ErrorCode.NONE
    return row


def test_delete_by_id_and_its_refusals(raw: RawClient, topics: Topics) -> None:
    name = topics.create()
    (by_id,) = delete(raw, {"name": None, "topic_id": topics.id_of(name)})
    assert (by_id["error_code"], by_id["name"]) == (ErrorCode.NONE, name)
    (unknown,) = delete(raw, {"name": topics.name(), "topic_id": None})
    assert unknown["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    (unknown_id,) = delete(raw, {"name": None, "topic_id": uuid.uuid4()})
    assert unknown_id["error_code"] == ErrorCode.UNKNOWN_TOPIC_ID
    (neither,) = delete(raw, {"name": None, "topic_id": None})
    assert neither["error_code"] == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", [1, 2, 3, 4, 5])
def test_old_delete_versions(raw: RawClient, topics: Topics, version: int) -> None:
    name, absent = topics.create(), topics.name()
    answers = raw.call("delete_topics", version, timeout=10_000, topic_names=[name, absent])
    assert {row["name"]: row["error_code"] for row in answers["responses"]} == {
        name: ErrorCode.NONE,
        absent: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


def add_partitions(
    raw: RawClient, name: str, count: int, validate_only: bool = False, **row: Any
) -> int:
    topic = {"name": name, "count": count, "assignments": None} | row
    (answer,) = raw.call(
        "create_partitions", 3, timeout=10_000, topics=[topic], validate_only=validate_only
    )["results"]
    return int(answer["error_code"])


def test_partitions_are_added_and_never_removed(raw: RawClient, topics: Topics) -> None:
    name = topics.create(partitions=2)
    assert add_partitions(raw, name, 9, validate_only=True) == ErrorCode.NONE
    assert add_partitions(raw, name, 4) == ErrorCode.NONE
    topics.wait_for(name, 4)
    assert (
        produce(raw, name, encode([Record(b"k", b"v")]), partition=3)["error_code"]
        == ErrorCode.NONE
    )
    for count in (4, 3, 0):
        assert add_partitions(raw, name, count) == ErrorCode.INVALID_PARTITIONS
    assert add_partitions(raw, topics.name(), 2) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    broker = raw.call("metadata", 12, topics=[])["brokers"][0]["node_id"]
    assert (
        add_partitions(raw, name, 6, assignments=[{"broker_ids": [broker]}])
        == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    )
    assert (
        add_partitions(raw, name, 5, assignments=[{"broker_ids": [999]}])
        == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    )
    assert add_partitions(raw, name, 5, assignments=[{"broker_ids": [broker]}]) == ErrorCode.NONE
    topics.wait_for(name, 5)


def test_describe_topic_partitions_pages_with_a_cursor(raw: RawClient, topics: Topics) -> None:
    name, absent = topics.create(partitions=5), topics.name()
    broker = raw.call("metadata", 12, topics=[])["brokers"][0]["node_id"]

    def ask(limit: int, cursor: Any = None, names: tuple[str, ...] = (name,)) -> dict[str, Any]:
        return raw.call(
            "describe_topic_partitions",
            0,
            topics=[{"name": one} for one in names],
            response_partition_limit=limit,
            cursor=cursor,
        )

    whole = ask(100, names=(name, absent))
    by_name = {row["name"]: row for row in whole["topics"]}
    assert [row["name"] for row in whole["topics"]] == sorted(by_name)
    assert whole["next_cursor"] is None
    assert by_name[absent]["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert by_name[name]["topic_id"] == topics.id_of(name)
    assert by_name[name]["topic_authorized_operations"] == 3576
    assert [row["partition_index"] for row in by_name[name]["partitions"]] == [0, 1, 2, 3, 4]
    for row in by_name[name]["partitions"]:
        assert row["replica_nodes"] == row["isr_nodes"] == [broker] == [row["leader_id"]]
        assert row["eligible_leader_replicas"] == row["last_known_elr"] == []
    page = ask(2)
    assert [row["partition_index"] for row in page["topics"][0]["partitions"]] == [0, 1]
    assert page["next_cursor"] == {"topic_name": name, "partition_index": 2}
    rest = ask(100, page["next_cursor"])
    assert [row["partition_index"] for row in rest["topics"][0]["partitions"]] == [2, 3, 4]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_describe_cluster(raw: RawClient, version: int) -> None:
    known = raw.call("metadata", 12, topics=[])
    answer = raw.call("describe_cluster", version)
    assert answer["error_code"] == ErrorCode.NONE
    assert answer["cluster_id"] == known["cluster_id"]
    assert answer["controller_id"] == known["controller_id"]
    assert [(b["broker_id"], b["host"], b["port"]) for b in answer["brokers"]] == [
        (b["node_id"], b["host"], b["port"]) for b in known["brokers"]
    ]
    assert answer["cluster_authorized_operations"] == -(2**31)


def test_describe_cluster_of_controllers_is_refused_by_a_broker(raw: RawClient) -> None:
    assert (
        raw.call("describe_cluster", 1, endpoint_type=2)["error_code"]
        == ErrorCode.MISMATCHED_ENDPOINT_TYPE
    )


@pytest.mark.parametrize("version", [1, 2, 3, 4, 5])
def test_describe_log_dirs_counts_the_bytes(raw: RawClient, topics: Topics, version: int) -> None:
    topic = topics.create(partitions=2)
    batch = encode([Record(b"k", b"v" * 500)])
    produce(raw, topic, batch, partition=1)
    asked = [{"topic": topic, "partitions": [0, 1, 9]}, {"topic": topics.name(), "partitions": [0]}]
    (directory,) = raw.call("describe_log_dirs", version, topics=asked)["results"]
    assert directory["error_code"] == ErrorCode.NONE
    assert directory["log_dir"].startswith("/")
    (row,) = directory["topics"]
    sizes = {p["partition_index"]: p["partition_size"] for p in row["partitions"]}
    assert sizes == {0: 0, 1: len(batch)}
    assert {(p["offset_lag"], p["is_future_key"]) for p in row["partitions"]} == {(0, False)}
    if version >= 4:
        assert directory["total_bytes"] > directory["usable_bytes"] > 0
