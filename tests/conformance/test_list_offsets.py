"""ListOffsets, DeleteRecords and OffsetForLeaderEpoch on the wire."""

from __future__ import annotations

import time
from typing import Any

import pytest
from tests.conformance.batches import Record, encode
from tests.conformance.conftest import Topics
from tests.conformance.fetching import fetch, list_offset, produce
from tests.conformance.raw import RawClient

from kafkaesque.model.errors import ErrorCode

BASE = int(time.time() * 1000) - 100_000
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5


@pytest.fixture
def filled(raw: RawClient, topic: str) -> str:
    """Two batches of five; record i has time BASE + 10 i."""
    for first in (0, 5):
        records = [Record(b"k", b"v", BASE + 10 * (first + index)) for index in range(5)]
        produce(raw, topic, encode(records, codec="gzip" if first else "none"))
    return topic


def answer_of(row: dict[str, Any]) -> tuple[int, int, int, int]:
    """Epochs relative to the first leader's, which is 0 in Kafka and 1 here."""
    return row["error_code"], row["offset"], row["timestamp"], min(row["leader_epoch"], 0)


@pytest.mark.parametrize("version", range(4, 12))
def test_latest_and_earliest_carry_no_timestamp(raw: RawClient, filled: str, version: int) -> None:
    assert answer_of(list_offset(raw, filled, LATEST, version=version)) == (
        ErrorCode.NONE,
        10,
        -1,
        0,
    )
    assert answer_of(list_offset(raw, filled, EARLIEST, version=version)) == (
        ErrorCode.NONE,
        0,
        -1,
        0,
    )


@pytest.mark.parametrize("version", range(1, 4))
def test_old_versions_answer_without_epoch(raw: RawClient, filled: str, version: int) -> None:
    row = list_offset(raw, filled, LATEST, version=version)
    assert (row["error_code"], row["offset"], row["timestamp"]) == (ErrorCode.NONE, 10, -1)


@pytest.mark.parametrize(
    ("at", "offset"),
    [(-1, 0), (0, 0), (1, 1), (40, 4), (41, 5), (55, 6), (90, 9), (91, -1), (10_000, -1)],
)
def test_time_lookup_is_exact_within_batches(
    raw: RawClient, filled: str, at: int, offset: int
) -> None:
    expected = (0, -1, -1, -1) if offset < 0 else (0, offset, BASE + 10 * offset, 0)
    assert answer_of(list_offset(raw, filled, BASE + at)) == expected


def test_max_timestamp_is_the_first_record_that_has_it(raw: RawClient, topic: str) -> None:
    times = [10, 50, 20, 50, 30]
    produce(raw, topic, encode([Record(b"k", b"v", BASE + at) for at in times]))
    assert answer_of(list_offset(raw, topic, MAX_TIMESTAMP)) == (ErrorCode.NONE, 1, BASE + 50, 0)


def test_empty_partition(raw: RawClient, topic: str) -> None:
    assert answer_of(list_offset(raw, topic, LATEST)) == (ErrorCode.NONE, 0, -1, 0)
    assert answer_of(list_offset(raw, topic, EARLIEST)) == (ErrorCode.NONE, 0, -1, 0)
    assert answer_of(list_offset(raw, topic, MAX_TIMESTAMP)) == (ErrorCode.NONE, -1, -1, -1)
    assert answer_of(list_offset(raw, topic, BASE)) == (ErrorCode.NONE, -1, -1, -1)


@pytest.mark.parametrize(
    ("special", "first_version"), [(MAX_TIMESTAMP, 7), (EARLIEST_LOCAL, 8), (LATEST_TIERED, 9)]
)
def test_special_time_before_its_version_is_unsupported(
    raw: RawClient, filled: str, special: int, first_version: int
) -> None:
    assert (
        list_offset(raw, filled, special, version=first_version - 1)["error_code"]
        == ErrorCode.UNSUPPORTED_VERSION
    )
    assert list_offset(raw, filled, special, version=first_version)["error_code"] == ErrorCode.NONE


def test_local_and_tiered_offsets_of_a_log_without_tiers(raw: RawClient, filled: str) -> None:
    assert answer_of(list_offset(raw, filled, EARLIEST_LOCAL)) == (ErrorCode.NONE, 0, -1, 0)
    assert answer_of(list_offset(raw, filled, LATEST_TIERED)) == (ErrorCode.NONE, -1, -1, -1)
    assert list_offset(raw, filled, -7)["error_code"] == ErrorCode.UNSUPPORTED_VERSION


def test_unknown_partition_future_epoch_and_repeated_partition(
    raw: RawClient, filled: str, topics: Topics
) -> None:
    assert answer_of(list_offset(raw, filled, LATEST, partition=8)) == (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        -1,
        -1,
        -1,
    )
    assert answer_of(list_offset(raw, topics.name(), LATEST)) == (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        -1,
        -1,
        -1,
    )
    assert (
        list_offset(raw, filled, LATEST, current_leader_epoch=9)["error_code"]
        == ErrorCode.UNKNOWN_LEADER_EPOCH
    )
    row = {"partition_index": 0, "timestamp": LATEST}
    answer = raw.call(
        "list_offsets", 9, replica_id=-1, topics=[{"name": filled, "partitions": [row, row]}]
    )
    assert [p["error_code"] for p in answer["topics"][0]["partitions"]] == [
        ErrorCode.INVALID_REQUEST
    ]


def delete_records(raw: RawClient, topic: str, offset: int, partition: int = 0) -> tuple[int, int]:
    answer = raw.call(
        "delete_records",
        2,
        timeout=5000,
        topics=[{"name": topic, "partitions": [{"partition_index": partition, "offset": offset}]}],
    )
    row = answer["topics"][0]["partitions"][0]
    return row["error_code"], row["low_watermark"]


def test_deleted_records_are_never_seen_again(raw: RawClient, filled: str) -> None:
    assert delete_records(raw, filled, 7) == (ErrorCode.NONE, 7)
    assert list_offset(raw, filled, EARLIEST)["offset"] == 7
    assert list_offset(raw, filled, 0)["offset"] == 7
    assert fetch(raw, filled, 6)["error_code"] == ErrorCode.OFFSET_OUT_OF_RANGE
    assert fetch(raw, filled, 7)["log_start_offset"] == 7
    assert delete_records(raw, filled, 3) == (ErrorCode.NONE, 7)


def test_deleting_up_to_the_high_watermark_empties_the_partition(
    raw: RawClient, filled: str
) -> None:
    assert delete_records(raw, filled, -1) == (ErrorCode.NONE, 10)
    assert list_offset(raw, filled, EARLIEST)["offset"] == 10
    assert list_offset(raw, filled, 0)["offset"] == -1
    assert produce(raw, filled, encode([Record(b"k", b"v")]))["base_offset"] == 10


def test_delete_records_refusals(raw: RawClient, filled: str, topics: Topics) -> None:
    assert delete_records(raw, filled, 11) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert delete_records(raw, filled, -2) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert delete_records(raw, filled, 1, partition=4) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert delete_records(raw, topics.name(), 1) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    compacted = topics.create(cleanup_policy="compact")
    assert delete_records(raw, compacted, 0) == (ErrorCode.POLICY_VIOLATION, -1)


@pytest.mark.parametrize("version", [2, 3, 4])
def test_offset_for_leader_epoch(raw: RawClient, filled: str, topics: Topics, version: int) -> None:
    def ask(epoch: int, current: int = -1, topic: str = filled) -> tuple[int, int, int]:
        row = {"partition": 0, "current_leader_epoch": current, "leader_epoch": epoch}
        extra = {"replica_id": -1} if version >= 3 else {}
        answer = raw.call(
            "offset_for_leader_epoch",
            version,
            topics=[{"topic": topic, "partitions": [row]}],
            **extra,
        )
        found = answer["topics"][0]["partitions"][0]
        return found["error_code"], found["leader_epoch"], found["end_offset"]

    first = list_offset(raw, filled, LATEST)["leader_epoch"]
    assert ask(first) == (ErrorCode.NONE, first, 10)
    assert ask(5) == (ErrorCode.NONE, -1, -1)
    assert ask(first, current=5) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)
    assert ask(first, topic=topics.name()) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
