"""Every client consumes what it produced, unchanged, and the broker stores the same bytes."""

from __future__ import annotations

import contextlib
import time

import pytest
from tests.conformance import batches
from tests.conformance.clients import Client, ClientFailure, Message
from tests.conformance.clients.model import CREATE_TIME, LOG_APPEND_TIME, ConsumerOptions
from tests.conformance.conftest import Topics
from tests.conformance.fetching import fetch
from tests.conformance.raw import RawClient
from tests.waiting import eventually_passes

from kafkaesque.model.errors import ErrorCode

NOW = int(time.time() * 1000)
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def test_keys_values_and_timestamps_are_unchanged(client: Client, topic: str) -> None:
    sent = [
        Message(b"plain", b"key", timestamp_ms=NOW - 5000),
        Message(b"no key", None, timestamp_ms=NOW - 4000),
        Message(b"", b"empty value", timestamp_ms=NOW - 3000),
        Message(b"empty key", b"", timestamp_ms=NOW - 2000),
        Message("ünïcödé".encode(), bytes(range(256)), timestamp_ms=NOW - 1000),
    ]
    assert client.produce(topic, sent) == [0, 1, 2, 3, 4]
    got = client.read_all(topic, len(sent))
    assert [(r.offset, r.key, r.value, r.timestamp_ms) for r in got] == [
        (offset, m.key, m.value, m.timestamp_ms) for offset, m in enumerate(sent)
    ]
    assert {r.timestamp_type for r in got} == {CREATE_TIME}


def test_null_value_is_not_an_empty_value(client: Client, topic: str) -> None:
    client.produce(topic, [Message(None, b"k"), Message(b"", b"k")])
    assert [r.value for r in client.read_all(topic, 2)] == [None, b""]


def test_headers_keep_order_duplicates_and_empty_values(client: Client, topic: str) -> None:
    headers = (("a", b"1"), ("b", b""), ("a", b"2"), ("z", b"\x00\xff"))
    client.produce(topic, [Message(b"v", b"k", headers), Message(b"none", b"k")])
    got = client.read_all(topic, 2)
    if "header order" in client.lacks:
        assert sorted(got[0].headers) == sorted(headers)
    else:
        assert tuple(got[0].headers) == headers
    assert tuple(got[1].headers) == ()


def test_null_header_value_stays_null(client: Client, topic: str) -> None:
    if "null header" in client.lacks:
        pytest.skip(
            f"{client.name} cannot send a null header value: a limit of the library, nothing to install"
        )
    client.produce(topic, [Message(b"v", b"k", (("n", None), ("e", b"")))])
    (got,) = client.read_all(topic, 1)
    assert tuple(got.headers) == (("n", None), ("e", b""))


@pytest.mark.parametrize("codec", CODECS)
def test_codec_round_trip_is_stored_as_sent(
    client: Client, topic: str, codec: str, raw: RawClient
) -> None:
    if codec not in client.codecs:
        pytest.skip(f"{client.name} has no {codec}: a limit of the library, nothing to install")
    sent = [Message(b"compressible " * 50, b"%d" % index) for index in range(50)]
    assert client.produce(topic, sent, codec=codec) == list(range(50))
    got = client.read_all(topic, 50)
    assert [(r.key, r.value) for r in got] == [(m.key, m.value) for m in sent]
    stored = batches.split(fetch(raw, topic)["records"])
    assert {batches.header(batch).codec for batch in stored} == {codec}
    assert all(batches.crc_is_right(batch) for batch in stored)


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_large_message_of_900_kilobytes(client: Client, topic: str, codec: str) -> None:
    body = bytes(range(256)) * 3516
    assert len(body) > 900_000
    client.produce(topic, [Message(b"before"), Message(body), Message(b"after")], codec=codec)
    assert [r.value for r in client.read_all(topic, 3)] == [b"before", body, b"after"]


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_every_acks_setting_stores_the_records(client: Client, topic: str, acks: int) -> None:
    offsets = client.produce(topic, [Message(b"%d" % index) for index in range(20)], acks=acks)
    assert offsets == ([-1] * 20 if acks == 0 else list(range(20)))
    assert [r.value for r in client.read_all(topic, 20)] == [b"%d" % index for index in range(20)]


def test_records_are_written_to_the_chosen_partitions(client: Client, topics: Topics) -> None:
    topic = topics.create(partitions=3)
    sent = [Message(b"%d" % index, partition=index % 3) for index in range(30)]
    client.produce(topic, sent)
    got = client.read_all(topic, 30, partitions=3)
    for partition in range(3):
        mine = [r for r in got if r.partition == partition]
        assert [r.offset for r in mine] == list(range(10))
        assert [r.value for r in mine] == [m.value for m in sent if m.partition == partition]


def test_log_append_time_topic_replaces_the_clients_timestamps(
    client: Client, topics: Topics
) -> None:
    topic = topics.create(message_timestamp_type="LogAppendTime")
    client.produce(topic, [Message(b"a", timestamp_ms=1000), Message(b"b", timestamp_ms=2000)])
    got = client.read_all(topic, 2)
    assert all(r.timestamp_ms > 1_700_000_000_000 for r in got)
    if "timestamp type" not in client.lacks:
        assert {r.timestamp_type for r in got} == {LOG_APPEND_TIME}


def test_message_over_the_topics_limit_is_refused(client: Client, topics: Topics) -> None:
    topic = topics.create(max_message_bytes="1000")
    with pytest.raises(ClientFailure) as refused:
        client.produce(topic, [Message(b"x" * 2000)])
    assert refused.value.code == ErrorCode.MESSAGE_TOO_LARGE
    assert client.produce(topic, [Message(b"x" * 500)]) == [0]


def test_producing_to_an_absent_topic_creates_it(client: Client, topics: Topics) -> None:
    topic = topics.name("auto")
    if "auto-create" in client.lacks:
        pytest.skip(
            f"{client.name} does not request auto-creation: a limit of the library, nothing to install"
        )
    assert client.produce(topic, [Message(b"first")]) == [0]
    assert [r.value for r in client.read_all(topic, 1)] == [b"first"]


def test_ten_thousand_small_records_arrive_in_order(client: Client, topic: str) -> None:
    count = 10_000 if client.name in ("confluent-kafka", "franz-go") else 2_000
    client.produce(topic, [Message(b"%d" % index) for index in range(count)], idempotent=True)
    got = client.read_all(topic, count)
    assert [r.value for r in got] == [b"%d" % index for index in range(count)]
    assert [r.offset for r in got] == list(range(count))


def test_commit_and_resume(client: Client, topic: str, group: str) -> None:
    client.produce(topic, [Message(b"%d" % index) for index in range(10)])
    first = client.subscribe([topic], ConsumerOptions(group=group))
    try:
        assert len(first.take(10)) == 10
        first.commit()
    finally:
        first.close()
    client.produce(topic, [Message(b"new")])
    second = client.subscribe([topic], ConsumerOptions(group=group))
    try:
        assert [(r.offset, r.value) for r in second.take(1)] == [(10, b"new")]
    finally:
        second.close()


def exists(raw: RawClient, topic: str) -> bool:
    (row,) = raw.call(
        "metadata",
        12,
        topics=[{"name": topic, "topic_id": None}],
        allow_auto_topic_creation=False,
    )["topics"]
    assert row["error_code"] in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return bool(row["error_code"] == ErrorCode.NONE)


# Seen with Apache Kafka 4.3.1: Java obeys both ways; a librdkafka subscriber creates nothing even
# when allowed, and kafka-python 3.0.12 creates the topic even when forbidden.
@pytest.mark.parametrize(
    ("client", "allowed"),
    [
        ("confluent-kafka", False),
        ("kafka-python", True),
        ("java-4.3.0", False),
        ("java-4.3.0", True),
        ("java-3.9.0", False),
        ("java-3.9.0", True),
    ],
    indirect=["client"],
)
def test_consumer_of_an_absent_topic_creates_it_only_when_allowed(
    client: Client, topics: Topics, group: str, raw: RawClient, allowed: bool
) -> None:
    topic = topics.name("absent")
    consumer = client.subscribe([topic], ConsumerOptions(group=group, allow_auto_create=allowed))

    def polled() -> None:
        # librdkafka reports the absent topic (code 3), the others retry silently.
        with contextlib.suppress(ClientFailure):
            assert consumer.poll(0.3) == []
        assert exists(raw, topic) == allowed

    try:
        for _ in range(3 if not allowed else 1):
            eventually_passes(polled)
    finally:
        consumer.close()
