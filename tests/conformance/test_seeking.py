"""Positions: seeking, time lookups, watermarks, and progress under small fetch limits."""

from __future__ import annotations

import time

import pytest
from tests.conformance.clients import Client, Message
from tests.conformance.clients.model import ConsumerOptions
from tests.conformance.conftest import Topics
from tests.conformance.fetching import list_offset
from tests.conformance.raw import RawClient

BASE = int(time.time() * 1000) - 100_000


def test_seek_goes_to_the_exact_offset(client: Client, topic: str) -> None:
    client.produce(topic, [Message(b"%d" % index) for index in range(50)])
    consumer = client.assign([(topic, 0)], ConsumerOptions())
    try:
        consumer.seek(topic, 0, 17)
        assert [r.offset for r in consumer.take(33)] == list(range(17, 50))
        if "seek while running" in client.lacks:
            return
        consumer.seek(topic, 0, 3)
        assert consumer.take(1)[0].offset == 3
        consumer.seek(topic, 0, 49)
        assert consumer.take(1)[0].value == b"49"
    finally:
        consumer.close()


def test_reader_from_the_end_sees_only_later_records(client: Client, topic: str) -> None:
    client.produce(topic, [Message(b"old") for _ in range(5)])
    consumer = client.assign([(topic, 0)], ConsumerOptions(reset="latest"))
    try:
        consumer.seek(topic, 0, client.watermarks(topic, 0)[1])
        assert consumer.poll(0.3) == []
        client.produce(topic, [Message(b"new")])
        assert [(r.offset, r.value) for r in consumer.take(1)] == [(5, b"new")]
    finally:
        consumer.close()


def test_offset_outside_the_log_resets_to_the_earliest(
    client: Client, topic: str, raw: RawClient
) -> None:
    client.produce(topic, [Message(b"%d" % index) for index in range(10)])
    raw.call(
        "delete_records",
        2,
        timeout=5000,
        topics=[{"name": topic, "partitions": [{"partition_index": 0, "offset": 4}]}],
    )
    consumer = client.assign([(topic, 0)], ConsumerOptions(reset="earliest"))
    try:
        consumer.seek(topic, 0, 1)
        assert [r.offset for r in consumer.take(6)] == [4, 5, 6, 7, 8, 9]
    finally:
        consumer.close()
    assert client.watermarks(topic, 0) == (4, 10)


def test_time_lookup_is_exact_to_the_record(client: Client, topic: str) -> None:
    # Two batches; times rise by 10 within and between them.
    for first in (0, 5):
        client.produce(
            topic,
            [Message(b"x", timestamp_ms=BASE + 10 * (first + index)) for index in range(5)],
            codec="gzip" if first else "none",
        )
    lookups = {
        BASE - 1: 0,
        BASE: 0,
        BASE + 1: 1,
        BASE + 40: 4,
        BASE + 41: 5,
        BASE + 65: 7,
        BASE + 90: 9,
        BASE + 91: None,
    }
    assert {at: client.offset_for_time(topic, 0, at) for at in lookups} == lookups


def test_time_lookup_finds_the_first_of_unordered_times(client: Client, topic: str) -> None:
    times = [50, 10, 40, 20, 60, 30]
    for at in times:
        client.produce(topic, [Message(b"x", timestamp_ms=BASE + at)])
    assert client.offset_for_time(topic, 0, BASE + 45) == 0
    assert client.offset_for_time(topic, 0, BASE + 55) == 4


def test_max_timestamp_names_the_newest_record(client: Client, topic: str, raw: RawClient) -> None:
    client.produce(
        topic,
        [Message(b"x", timestamp_ms=BASE + at) for at in (10, 30, 20)],
    )
    client.produce(topic, [Message(b"x", timestamp_ms=BASE + 25)])
    answer = list_offset(raw, topic, -3)
    assert (answer["offset"], answer["timestamp"]) == (1, BASE + 30)


def test_watermarks_of_an_empty_and_a_filled_partition(client: Client, topics: Topics) -> None:
    topic = topics.create(partitions=2)
    client.produce(topic, [Message(b"x", partition=1)] * 3)
    assert client.watermarks(topic, 0) == (0, 0)
    assert client.watermarks(topic, 1) == (0, 3)


def test_position_follows_the_records_read(client: Client, topic: str) -> None:
    if "position" in client.lacks:
        pytest.skip(
            f"{client.name} has no position call: a limit of the library, nothing to install"
        )
    client.produce(topic, [Message(b"%d" % index) for index in range(10)])
    consumer = client.assign([(topic, 0)], ConsumerOptions())
    try:
        consumer.seek(topic, 0, 2)
        got = consumer.take(8)
        assert consumer.position(topic, 0) == got[-1].offset + 1 == 10
    finally:
        consumer.close()


def test_small_partition_limit_still_makes_progress(client: Client, topic: str) -> None:
    sent = [Message(b"%d" % index + b"x" * 20_000) for index in range(20)]
    for message in sent:
        client.produce(topic, [message])
    consumer = client.assign([(topic, 0)], ConsumerOptions(max_partition_fetch_bytes=1000))
    try:
        consumer.seek(topic, 0, 0)
        assert [r.value for r in consumer.take(20)] == [m.value for m in sent]
    finally:
        consumer.close()


# Not with Java or kafkajs: their close waits for the fetch in flight.
@pytest.mark.parametrize(
    "client", ["confluent-kafka", "kafka-python", "aiokafka", "franz-go"], indirect=True
)
def test_waiting_reader_is_woken_by_new_data(client: Client, topic: str) -> None:
    # The fetch may wait far longer than this test: only a wake-up on append can finish it in time.
    options = ConsumerOptions(fetch_max_wait_ms=25_000, fetch_min_bytes=1)
    consumer = client.assign([(topic, 0)], options)
    try:
        consumer.seek(topic, 0, 0)
        assert consumer.poll(0.5) == []
        client.produce(topic, [Message(b"wake")])
        assert [r.value for r in consumer.take(1, timeout_s=15)] == [b"wake"]
    finally:
        consumer.close()


def test_committed_offset_and_end_give_the_lag(
    client: Client, topic: str, group: str, raw: RawClient
) -> None:
    client.produce(topic, [Message(b"%d" % index) for index in range(10)])
    consumer = client.subscribe([topic], ConsumerOptions(group=group))
    try:
        consumer.take(10)
        consumer.commit()
        client.produce(topic, [Message(b"later")] * 4)
    finally:
        consumer.close()
    answer = raw.call(
        "offset_fetch", 7, group_id=group, topics=[{"name": topic, "partition_indexes": [0]}]
    )
    committed = answer["topics"][0]["partitions"][0]["committed_offset"]
    _, end = client.watermarks(topic, 0)
    assert end - committed == 4
