"""Fetch on the wire: limits, waiting, sessions, errors."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from tests.conformance import batches
from tests.conformance.batches import Record, encode
from tests.conformance.conftest import Topics
from tests.conformance.fetching import fetch, produce
from tests.conformance.raw import RawClient

from kafkaesque.model.errors import ErrorCode


def batch(count: int = 5, value: bytes = b"v" * 10) -> bytes:
    return encode([Record(b"k", value)] * count)


def bases(row: dict[str, Any]) -> list[int]:
    return [batches.header(one).base_offset for one in batches.split(row["records"])]


@pytest.fixture
def filled(raw: RawClient, topic: str) -> str:
    """Four batches of five: offsets 0 to 19."""
    for _ in range(4):
        assert produce(raw, topic, batch())["error_code"] == ErrorCode.NONE
    return topic


@pytest.mark.parametrize("version", range(4, 13))
def test_every_version_reads_from_the_start(raw: RawClient, filled: str, version: int) -> None:
    row = fetch(raw, filled, version=version)
    assert row["error_code"] == ErrorCode.NONE
    assert (row["high_watermark"], row["last_stable_offset"]) == (20, 20)
    assert bases(row) == [0, 5, 10, 15]


@pytest.mark.parametrize("version", range(13, 19))
def test_newer_versions_name_the_topic_by_id(
    raw: RawClient, filled: str, topics: Topics, version: int
) -> None:
    def ask(topic_id: uuid.UUID) -> dict[str, Any]:
        answer = raw.call(
            "fetch",
            version,
            max_wait=100,
            min_bytes=1,
            max_bytes=1_000_000,
            topics=[
                {
                    "topic_id": topic_id,
                    "partitions": [
                        {"partition": 0, "fetch_offset": 5, "partition_max_bytes": 1_000_000}
                    ],
                }
            ],
        )
        assert answer["responses"][0]["topic_id"] == topic_id
        found: dict[str, Any] = answer["responses"][0]["partitions"][0]
        return found

    assert bases(ask(topics.id_of(filled))) == [5, 10, 15]
    assert ask(uuid.uuid4())["error_code"] == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("offset", [5, 7, 9])
def test_mid_batch_offset_returns_the_batch_that_holds_it(
    raw: RawClient, filled: str, offset: int
) -> None:
    assert bases(fetch(raw, filled, offset)) == [5, 10, 15]


def test_end_of_the_log_is_empty_and_beyond_it_is_an_error(raw: RawClient, filled: str) -> None:
    at_end = fetch(raw, filled, 20)
    assert (at_end["error_code"], at_end["records"]) == (ErrorCode.NONE, b"")
    for offset in (21, -1):
        beyond = fetch(raw, filled, offset, max_wait=30_000)
        assert (beyond["error_code"], beyond["high_watermark"]) == (
            ErrorCode.OFFSET_OUT_OF_RANGE,
            -1,
        )


def test_unknown_topic_or_partition(raw: RawClient, filled: str, topics: Topics) -> None:
    assert fetch(raw, topics.name())["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert fetch(raw, filled, partition=9)["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("limit", [0, 1, 100])
def test_first_batch_is_complete_however_small_the_limit(
    raw: RawClient, filled: str, limit: int
) -> None:
    assert bases(fetch(raw, filled, partition_max_bytes=limit)) == [0]
    assert bases(fetch(raw, filled, max_bytes=limit)) == [0]


def test_partition_limit_bounds_the_answer(raw: RawClient, topic: str) -> None:
    for _ in range(10):
        produce(raw, topic, batch(1, b"x" * 10_000))
    row = fetch(raw, topic, partition_max_bytes=35_000)
    assert len(row["records"]) <= 35_000
    assert bases(row) == [0, 1, 2]


def test_request_limit_bounds_all_partitions_together(raw: RawClient, topics: Topics) -> None:
    topic = topics.create(partitions=3)
    for index in range(3):
        produce(raw, topic, batch(1, b"x" * 10_000), partition=index)
    rows = [
        {"partition": index, "fetch_offset": 0, "partition_max_bytes": 1_000_000}
        for index in range(3)
    ]
    answer = raw.call(
        "fetch",
        12,
        max_wait=100,
        min_bytes=1,
        max_bytes=15_000,
        topics=[{"topic": topic, "partitions": rows}],
    )
    got = [bases(row) for row in answer["responses"][0]["partitions"]]
    assert got == [[0], [], []]


def test_waiting_fetch_is_woken_by_an_append(bootstrap: str, raw: RawClient, topic: str) -> None:
    with RawClient(bootstrap, timeout_s=20) as waiting:
        sent = waiting.send(
            "fetch",
            12,
            max_wait=60_000,
            min_bytes=1,
            max_bytes=1_000_000,
            topics=[
                {
                    "topic": topic,
                    "partitions": [
                        {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1_000_000}
                    ],
                }
            ],
        )
        produce(raw, topic, batch())
        row = waiting.receive(sent)["responses"][0]["partitions"][0]
    assert bases(row) == [0]
    assert row["high_watermark"] == 5


def test_waiting_fetch_waits_until_min_bytes_are_there(
    bootstrap: str, raw: RawClient, topic: str
) -> None:
    one = batch(1, b"x" * 1000)
    with RawClient(bootstrap, timeout_s=20) as waiting:
        sent = waiting.send(
            "fetch",
            12,
            max_wait=60_000,
            min_bytes=2 * len(one),
            max_bytes=1_000_000,
            topics=[
                {
                    "topic": topic,
                    "partitions": [
                        {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1_000_000}
                    ],
                }
            ],
        )
        for _ in range(2):
            produce(raw, topic, one)
        row = waiting.receive(sent)["responses"][0]["partitions"][0]
    assert bases(row) == [0, 1]


def test_waiting_fetch_does_not_delay_other_connections(
    bootstrap: str, raw: RawClient, topic: str
) -> None:
    with RawClient(bootstrap) as waiting:
        waiting.send(
            "fetch",
            12,
            max_wait=60_000,
            min_bytes=1,
            max_bytes=1000,
            topics=[
                {
                    "topic": topic,
                    "partitions": [
                        {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
                    ],
                }
            ],
        )
        assert raw.call("metadata", 12, topics=[])["topics"] == []


def test_future_leader_epoch_is_unknown(raw: RawClient, filled: str) -> None:
    row = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
    row["current_leader_epoch"] = 5
    answer = raw.call(
        "fetch",
        12,
        max_wait=100,
        min_bytes=1,
        max_bytes=1000,
        topics=[{"topic": filled, "partitions": [row]}],
    )
    assert answer["responses"][0]["partitions"][0]["error_code"] == ErrorCode.UNKNOWN_LEADER_EPOCH


class Session:
    """An incremental fetch session (KIP-227)."""

    def __init__(self, raw: RawClient, topic: str, partitions: int) -> None:
        self.raw, self.topic = raw, topic
        self.id, self.epoch = 0, 0
        self.offsets = dict.fromkeys(range(partitions), 0)
        self.first = self.fetch(list(range(partitions)))

    def fetch(self, named: list[int], forgotten: list[int] | None = None) -> dict[str, Any]:
        rows = [
            {
                "partition": index,
                "fetch_offset": self.offsets[index],
                "partition_max_bytes": 1_000_000,
            }
            for index in named
        ]
        answer = self.raw.call(
            "fetch",
            12,
            max_wait=100,
            min_bytes=1,
            max_bytes=50_000_000,
            session_id=self.id,
            session_epoch=self.epoch,
            topics=[{"topic": self.topic, "partitions": rows}] if rows else [],
            forgotten_topics_data=(
                [{"topic": self.topic, "partitions": forgotten}] if forgotten else []
            ),
        )
        if answer["error_code"] == ErrorCode.NONE:
            self.id, self.epoch = answer["session_id"], self.epoch + 1
        return answer


def partitions_in(answer: dict[str, Any]) -> list[int]:
    return sorted(
        row["partition_index"] for topic in answer["responses"] for row in topic["partitions"]
    )


def test_session_returns_only_partitions_that_changed(raw: RawClient, topics: Topics) -> None:
    topic = topics.create(partitions=20)
    session = Session(raw, topic, 20)
    assert session.id > 0
    assert partitions_in(session.first) == list(range(20))
    assert session.fetch([])["responses"] == []
    produce(raw, topic, batch(), partition=7)
    changed = session.fetch([])
    assert partitions_in(changed) == [7]
    assert bases(changed["responses"][0]["partitions"][0]) == [0]
    session.offsets[7] = 5
    assert partitions_in(session.fetch([7])) == []
    produce(raw, topic, batch(), partition=7)
    produce(raw, topic, batch(), partition=3)
    assert partitions_in(session.fetch([])) == [3, 7]


def test_session_removes_partitions_on_request(raw: RawClient, topics: Topics) -> None:
    topic = topics.create(partitions=3)
    session = Session(raw, topic, 3)
    session.fetch([], forgotten=[1])
    for index in range(3):
        produce(raw, topic, batch(), partition=index)
    assert partitions_in(session.fetch([])) == [0, 2]


def test_unknown_session_and_wrong_epoch(raw: RawClient, topic: str) -> None:
    session = Session(raw, topic, 1)
    real_id, real_epoch = session.id, session.epoch
    session.epoch = 9
    wrong = session.fetch([])
    assert (wrong["error_code"], wrong["responses"]) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, [])
    session.id, session.epoch = 123_456_789, 1
    assert session.fetch([])["error_code"] == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    session.id, session.epoch = real_id, real_epoch
    assert session.fetch([])["error_code"] == ErrorCode.NONE


def test_closed_session_is_gone(raw: RawClient, filled: str) -> None:
    session = Session(raw, filled, 1)
    old_id, old_epoch = session.id, session.epoch
    session.epoch = -1
    final = session.fetch([0])
    assert (final["session_id"], partitions_in(final)) == (0, [0])
    session.id, session.epoch = old_id, old_epoch
    assert session.fetch([])["error_code"] == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
