"""The operations as a script uses them, without the command line, on a real broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kafkaesque.admin import brokers, groups, settings, topics
from kafkaesque.admin.connection import ClusterConnection
from kafkaesque.admin.errors import AdminError, ResourceNotFound
from kafkaesque.admin.offsets import partitions_of
from kafkaesque.admin.record_reader import (
    RecordSelection,
    read_group,
    read_ranges,
    select_ranges,
)
from kafkaesque.admin.record_writer import OutgoingRecord, RecordWriter, open_producer
from kafkaesque.admin.rules.offset_reset import OffsetSpec, Shift
from kafkaesque.testing import Broker


@pytest.fixture(scope="module")
def connection() -> Iterator[ClusterConnection]:
    with Broker() as broker:
        yield ClusterConnection(broker.bootstrap_servers, {}, 30)


def write(connection: ClusterConnection, topic: str, values: list[bytes]) -> RecordWriter:
    producer = open_producer(connection, topic, acks="all", idempotent=True, compression="none")
    writer = RecordWriter(producer, topic, lambda _size_bytes: None)
    for number, value in enumerate(values, 1):
        writer.write(OutgoingRecord(number, value, partition=0), "script")
    writer.finish()
    return writer


def test_topics_are_created_described_and_deleted(connection: ClusterConnection) -> None:
    outcomes = topics.create_topics(connection, ["a", "b"], partitions=2)
    assert [(one.topic, one.done) for one in outcomes] == [("a", "created"), ("b", "created")]
    (again,) = topics.create_topics(connection, ["a"], partitions=2)
    assert isinstance(again.error, AdminError)
    assert again.row()["result"] == "failed"
    topics.add_partitions(connection, "a", 3)
    (described,) = topics.describe_topics(connection, ["a"])
    assert described["partition_count"] == 3
    assert [
        row["topic"] for row in topics.list_topics(connection, internal=False, details=True)
    ] == [
        "a",
        "b",
    ]
    assert [one.done for one in topics.delete_topics(connection, ["a", "b"])] == ["deleted"] * 2
    with pytest.raises(ResourceNotFound, match="there is no topic 'a'") as raised:
        topics.describe_topics(connection, ["a"])
    assert raised.value.fix


def test_records_are_written_read_and_deleted(connection: ClusterConnection) -> None:
    topics.create_topics(connection, ["records"], partitions=1)
    assert write(connection, "records", [b"1", b"2", b"3"]).failures == []
    selection = RecordSelection(("records",), start=OffsetSpec("last", 2))
    ranges = select_ranges(connection, selection)
    read = [
        message.value() for batch in read_ranges(connection, ranges, selection) for message in batch
    ]
    assert read == [b"2", b"3"]
    partitions = partitions_of(connection, ["records"])
    (row,) = topics.delete_records(connection, partitions, {0: 2})
    assert row == {"partition": 0, "earliest": 2, "latest": 3}


def test_group_is_described_reset_and_deleted(connection: ClusterConnection) -> None:
    topics.create_topics(connection, ["orders"], partitions=1)
    write(connection, "orders", [b"1", b"2", b"3", b"4"])
    selection = RecordSelection(("orders",), group="billing")
    assert sum(map(len, read_group(connection, selection))) == 4
    assert groups.describe_group(connection, "billing")["lag"] == 0
    changes = groups.plan_group_reset(connection, "billing", Shift(-3), None)
    assert [(change.current, change.new) for change in changes] == [(4, 1)]
    groups.reset_offsets(connection, "billing", changes)
    assert groups.committed_offsets(connection, "billing") == {("orders", 0): 1}
    assert groups.delete_offsets(connection, "billing", [("orders", 0)]) == [("orders", 0)]
    groups.delete_groups(connection, ["billing"])
    with pytest.raises(ResourceNotFound, match="no consumer group 'billing'"):
        groups.existing_group(connection, "billing")


def test_settings_are_changed_and_described(connection: ClusterConnection) -> None:
    topics.create_topics(connection, ["tuned"], partitions=1)
    settings.alter_settings(connection, "topic", "tuned", {"retention.ms": "1000"}, ())
    changed = {
        row["name"]: row["value"]
        for row in settings.describe_settings(connection, "topic", "tuned")
        if row["source"] == "topic"
    }
    assert changed == {"retention.ms": "1000"}
    with pytest.raises(ResourceNotFound, match="there is no broker '9'"):
        settings.check_exists(connection, "broker", "9")


def test_brokers_and_quorum_are_described(connection: ClusterConnection) -> None:
    (row,) = brokers.list_brokers(connection)
    assert (row["id"], row["controller"]) == (0, True)
    assert brokers.describe_quorum(connection.cluster)["leader"] == 0
    assert brokers.list_reassignments(connection.cluster) == []
    with pytest.raises(ResourceNotFound, match="unregister broker 9"):
        brokers.unregister_broker(connection.cluster, 9)
