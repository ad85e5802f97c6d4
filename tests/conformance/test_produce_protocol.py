"""Produce on the wire: accepted requests, and the error codes of refused ones."""

from __future__ import annotations

import struct
import time
import uuid

import google_crc32c
import pytest
from tests.conformance import batches
from tests.conformance.batches import Record, encode
from tests.conformance.conftest import Topics
from tests.conformance.fetching import fetch, list_offset, produce
from tests.conformance.raw import Disconnected, RawClient

from kafkaesque.model.errors import ErrorCode

NOW = int(time.time() * 1000)
GOOD = encode([Record(b"k", b"%d" % index, NOW + index) for index in range(3)])


def patched(layout: str, position: int, value: int, batch: bytes = GOOD) -> bytes:
    """The batch with one header field changed, and a CRC that fits."""
    changed = bytearray(batch)
    struct.pack_into(layout, changed, position, value)
    struct.pack_into(">I", changed, 17, google_crc32c.value(bytes(changed[21:])))
    return bytes(changed)


@pytest.mark.parametrize("version", range(3, 13))
def test_every_version_stores_and_answers_the_offset(
    raw: RawClient, topic: str, version: int
) -> None:
    for base in (0, 3):
        answer = produce(raw, topic, GOOD, version=version)
        assert (answer["error_code"], answer["base_offset"]) == (ErrorCode.NONE, base)
        assert answer["log_append_time"] is None
        assert answer.get("log_start_offset", 0) == 0


def test_version_13_names_the_topic_by_id(raw: RawClient, topic: str, topics: Topics) -> None:
    def send(topic_id: uuid.UUID) -> tuple[int, int]:
        (row,) = raw.call(
            "produce",
            13,
            acks=-1,
            timeout=5000,
            topic_data=[{"topic_id": topic_id, "partition_data": [{"index": 0, "records": GOOD}]}],
        )["responses"]
        assert row["topic_id"] == topic_id
        (partition,) = row["partition_responses"]
        return partition["error_code"], partition["base_offset"]

    assert send(topics.id_of(topic)) == (ErrorCode.NONE, 0)
    assert send(uuid.uuid4()) == (ErrorCode.UNKNOWN_TOPIC_ID, -1)


@pytest.mark.parametrize(
    ("records", "code"),
    [
        pytest.param(b"", ErrorCode.INVALID_RECORD, id="no records"),
        pytest.param(b"abc", ErrorCode.INVALID_RECORD, id="three bytes"),
        pytest.param(GOOD[:-3], ErrorCode.INVALID_RECORD, id="truncated"),
        pytest.param(GOOD + GOOD, ErrorCode.INVALID_RECORD, id="two batches"),
        pytest.param(GOOD[:-1] + b"\xff", ErrorCode.CORRUPT_MESSAGE, id="wrong CRC"),
        pytest.param(GOOD[:16] + b"\x01" + GOOD[17:], ErrorCode.INVALID_RECORD, id="magic 1"),
        pytest.param(patched(">q", 0, 5), ErrorCode.INVALID_RECORD, id="base offset not 0"),
        pytest.param(patched(">h", 21, 0x20), ErrorCode.INVALID_RECORD, id="control batch"),
        pytest.param(patched(">i", 57, 2), ErrorCode.INVALID_RECORD, id="record count too small"),
        pytest.param(patched(">i", 57, 0), ErrorCode.INVALID_RECORD, id="record count 0"),
        pytest.param(
            patched(">i", 23, 7), ErrorCode.INVALID_RECORD, id="last offset delta too large"
        ),
        pytest.param(
            encode([Record(b"k", b"v", NOW)], producer_id=9, producer_epoch=0),
            ErrorCode.INVALID_RECORD,
            id="producer id without sequence",
        ),
    ],
)
def test_malformed_batch_is_refused_and_stores_nothing(
    raw: RawClient, topic: str, records: bytes, code: int
) -> None:
    answer = produce(raw, topic, records)
    assert (answer["error_code"], answer["base_offset"]) == (code, -1)
    assert list_offset(raw, topic, -1)["offset"] == 0
    assert produce(raw, topic, GOOD)["base_offset"] == 0


def test_unknown_topic_or_partition(raw: RawClient, topic: str, topics: Topics) -> None:
    assert produce(raw, topics.name(), GOOD)["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (
        produce(raw, topic, GOOD, partition=7)["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )


def test_invalid_acks_is_refused_per_partition(raw: RawClient, topic: str) -> None:
    assert produce(raw, topic, GOOD, acks=2)["error_code"] == ErrorCode.INVALID_REQUIRED_ACKS
    assert list_offset(raw, topic, -1)["offset"] == 0


def test_size_limit_applies_to_the_whole_batch(raw: RawClient, topics: Topics) -> None:
    topic = topics.create(max_message_bytes="1000")
    overhead = len(encode([Record(b"k", b"x" * 900, NOW)])) - 900
    fits = encode([Record(b"k", b"x" * (1000 - overhead), NOW)])
    over = encode([Record(b"k", b"x" * (1001 - overhead), NOW)])
    assert (len(fits), len(over)) == (1000, 1001)
    assert produce(raw, topic, fits)["error_code"] == ErrorCode.NONE
    assert produce(raw, topic, over)["error_code"] == ErrorCode.MESSAGE_TOO_LARGE


def test_zstd_needs_produce_7(raw: RawClient, topic: str) -> None:
    batch = encode([Record(b"k", b"v", NOW)], codec="zstd")
    assert (
        produce(raw, topic, batch, version=6)["error_code"]
        == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    )
    assert produce(raw, topic, batch, version=7)["error_code"] == ErrorCode.NONE


def test_timestamp_far_in_the_future_is_refused(raw: RawClient, topic: str) -> None:
    answer = produce(raw, topic, encode([Record(b"k", b"v", NOW + 7_200_000)]))
    assert answer["error_code"] == ErrorCode.INVALID_TIMESTAMP
    assert [row["batch_index"] for row in answer["record_errors"]] == [0]
    assert answer["error_message"]


def test_timestamp_older_than_the_topic_allows_is_refused(raw: RawClient, topics: Topics) -> None:
    # An hour: far more than the time between this module's import and this line.
    topic = topics.create(message_timestamp_before_max_ms="3600000")
    assert (
        produce(raw, topic, encode([Record(b"k", b"v", NOW - 7_200_000)]))["error_code"]
        == ErrorCode.INVALID_TIMESTAMP
    )
    assert produce(raw, topic, encode([Record(b"k", b"v", NOW)]))["error_code"] == ErrorCode.NONE


def test_log_append_time_is_in_the_answer_and_in_the_stored_batch(
    raw: RawClient, topics: Topics
) -> None:
    topic = topics.create(message_timestamp_type="LogAppendTime")
    answer = produce(raw, topic, encode([Record(b"k", b"v", 1000), Record(b"k", b"v", 2000)]))
    assert answer["log_append_time"] > 1_700_000_000_000
    (stored,) = batches.split(fetch(raw, topic)["records"])
    header = batches.header(stored)
    assert header.log_append_time
    assert header.max_timestamp == answer["log_append_time"]
    assert batches.crc_is_right(stored)


@pytest.mark.parametrize("codec", ["none", "gzip", "zstd"])
def test_keyless_record_on_a_compacted_topic_is_refused_by_index(
    raw: RawClient, topics: Topics, codec: str
) -> None:
    topic = topics.create(cleanup_policy="compact")
    batch = encode(
        [Record(b"k", b"v", NOW), Record(None, b"v", NOW), Record(None, b"w", NOW)], codec=codec
    )
    answer = produce(raw, topic, batch)
    assert answer["error_code"] == ErrorCode.INVALID_RECORD
    assert [row["batch_index"] for row in answer["record_errors"]] == [1, 2]
    assert (
        produce(raw, topic, encode([Record(b"k", None, NOW)], codec=codec))["error_code"]
        == ErrorCode.NONE
    )


def test_failing_acks_0_closes_the_connection(bootstrap: str, topics: Topics) -> None:
    with RawClient(bootstrap) as doomed:
        doomed.send(
            "produce",
            9,
            acks=0,
            timeout=1000,
            topic_data=[{"name": topics.name(), "partition_data": [{"index": 0, "records": GOOD}]}],
        )
        with pytest.raises(Disconnected):
            doomed.receive_frame()


def test_acks_0_has_no_answer_and_keeps_the_connection(raw: RawClient, topic: str) -> None:
    data = [{"name": topic, "partition_data": [{"index": 0, "records": GOOD}]}]
    for _ in range(3):
        raw.send("produce", 9, acks=0, timeout=1000, topic_data=data)
    # The next answer on the wire belongs to the next request, and comes after the appends.
    assert produce(raw, topic, GOOD)["base_offset"] == 9


def test_one_bad_partition_does_not_affect_the_others(raw: RawClient, topics: Topics) -> None:
    topic = topics.create(partitions=2)
    answer = raw.call(
        "produce",
        9,
        acks=-1,
        timeout=5000,
        topic_data=[
            {
                "name": topic,
                "partition_data": [
                    {"index": 0, "records": GOOD},
                    {"index": 1, "records": GOOD[:-1] + b"\xff"},
                    {"index": 5, "records": GOOD},
                ],
            }
        ],
    )
    rows = {row["index"]: row for row in answer["responses"][0]["partition_responses"]}
    assert {index: row["error_code"] for index, row in rows.items()} == {
        0: ErrorCode.NONE,
        1: ErrorCode.CORRUPT_MESSAGE,
        5: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert rows[0]["base_offset"] == 0


def test_broker_changes_only_offset_and_epoch(raw: RawClient, topic: str) -> None:
    for _ in range(2):
        produce(raw, topic, GOOD)
    _first, second = batches.split(fetch(raw, topic)["records"])
    assert batches.header(second).base_offset == 3
    assert batches.header(second).leader_epoch in (0, 1)  # the first of Kafka, and of Raft
    # All but base offset and leader epoch: length, then magic to the end.
    assert second[8:12] == GOOD[8:12]
    assert second[16:] == GOOD[16:]


def test_pipelined_requests_are_answered_in_order(raw: RawClient, topic: str) -> None:
    data = [{"name": topic, "partition_data": [{"index": 0, "records": GOOD}]}]
    sent = [
        raw.send("produce", 9, acks=acks, timeout=5000, topic_data=data)
        for acks in (-1, 1, -1, 1, -1)
    ]
    answers = [raw.receive(one) for one in sent]
    offsets = [a["responses"][0]["partition_responses"][0]["base_offset"] for a in answers]
    assert offsets == [0, 3, 6, 9, 12]
