"""Fetch: what is returned, when it waits, and what a session leaves out."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.broker.server.conftest import MakeBroker
from tests.broker.server.local_broker import LocalBroker, every_version

from kafkaesque.broker.storage.log import Log
from kafkaesque.model.errors import ErrorCode
from kafkaesque.records.batch import iter_batches, read_header
from kafkaesque.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
)


def request(
    broker: LocalBroker,
    *asked: tuple[str, int, int],
    version: int = 12,
    max_bytes: int = 1 << 20,
    partition_max_bytes: int = 1 << 20,
    **more: Any,
) -> FetchRequest:
    by_name = broker.context.cluster.tables.by_name
    topics = [
        FetchTopic(
            topic=name,
            topic_id=by_name[name].topic_id if name in by_name else by_name["a"].topic_id,
            partitions=[
                FetchPartition(
                    partition=index, fetch_offset=offset, partition_max_bytes=partition_max_bytes
                )
            ],
        )
        for name, index, offset in asked
    ]
    defaults = {"max_wait_ms": 0, "min_bytes": 1}
    return FetchRequest(**{**defaults, **more}, max_bytes=max_bytes, topics=topics)


def fetch(broker: LocalBroker, *asked: tuple[str, int, int], version: int = 12, **more: Any) -> Any:
    return broker.ask(request(broker, *asked, version=version, **more), version)


def rows(response: FetchResponse) -> list[tuple[str, int, int, int]]:
    """(topic, partition, error, number of batches)"""
    return [
        (
            topic.topic,
            row.partition_index,
            row.error_code,
            len(list(iter_batches(row.records or b""))),
        )
        for topic in response.responses
        for row in topic.partitions
    ]


@pytest.fixture
def topic(broker: LocalBroker) -> LocalBroker:
    """Topic a: batches [0, 1, 2] [3] [4, 5] in partition 0; partition 1 is empty."""
    broker.create("a", 2)
    for times in ((1, 2, 3), (4,), (5, 6)):
        broker.append("a", *times)
    return broker


@pytest.mark.parametrize("version", every_version(FetchRequest))
def test_whole_batches_come_from_the_one_that_holds_the_offset(
    topic: LocalBroker, version: int
) -> None:
    response = fetch(topic, ("a", 0, 1), version=version)
    (row,) = response.responses[0].partitions
    assert read_header(row.records).base_offset == 0
    assert len(list(iter_batches(row.records))) == 3
    assert row.high_watermark == 6
    assert row.last_stable_offset == 6


def test_first_batch_comes_whatever_the_limits_say(topic: LocalBroker) -> None:
    for limits in ({"max_bytes": 1}, {"partition_max_bytes": 1}, {"max_bytes": 0}):
        assert rows(fetch(topic, ("a", 0, 0), **limits)) == [("a", 0, ErrorCode.NONE, 1)]


def test_only_the_first_partition_with_data_may_exceed_the_limit(broker: LocalBroker) -> None:
    broker.create("a", 3)
    broker.append("a", 1, index=1)
    broker.append("a", 1, index=2)
    found = rows(fetch(broker, ("a", 0, 0), ("a", 1, 0), ("a", 2, 0), max_bytes=1))
    assert [count for *_, count in found] == [0, 1, 0]


@pytest.mark.parametrize("offset", [-1, 7, 1000])
def test_offset_outside_the_log_is_refused_at_once(topic: LocalBroker, offset: int) -> None:
    response = fetch(topic, ("a", 0, offset), max_wait_ms=60_000)
    assert rows(response) == [("a", 0, ErrorCode.OFFSET_OUT_OF_RANGE, 0)]


def test_end_of_the_log_is_a_legal_offset(topic: LocalBroker) -> None:
    assert rows(fetch(topic, ("a", 0, 6))) == [("a", 0, ErrorCode.NONE, 0)]


def test_unknown_topics_are_reported_by_name_and_by_id(topic: LocalBroker) -> None:
    assert rows(fetch(topic, ("nowhere", 0, 0))) == [
        ("nowhere", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0)
    ]
    wrong = request(topic, ("a", 0, 0))
    wrong.topics[0].topic_id = type(wrong.topics[0].topic_id)(int=99)
    (row,) = topic.ask(wrong, 13).responses[0].partitions
    assert row.error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_read_committed_gets_an_empty_list_of_aborted_transactions(topic: LocalBroker) -> None:
    (row,) = fetch(topic, ("a", 0, 0), isolation_level=1).responses[0].partitions
    assert row.aborted_transactions == []
    (row,) = fetch(topic, ("a", 0, 0), isolation_level=0).responses[0].partitions
    assert row.aborted_transactions is None


def test_waiting_fetch_is_woken_by_new_data(topic: LocalBroker) -> None:
    async def story() -> FetchResponse:
        asked = request(topic, ("a", 1, 0), max_wait_ms=60_000)
        waiting = asyncio.create_task(topic.answer(asked, 12))
        await asyncio.sleep(0)
        assert not waiting.done()
        topic.partition("a", 1).append_own(sealed())
        return await waiting  # type: ignore[no-any-return]

    assert rows(topic.run(story())) == [("a", 1, ErrorCode.NONE, 1)]


def test_waiting_fetch_ends_with_its_time_and_leaves_no_watcher(topic: LocalBroker) -> None:
    assert rows(fetch(topic, ("a", 1, 0), max_wait_ms=1)) == [("a", 1, ErrorCode.NONE, 0)]
    assert not topic.partition("a", 1)._watchers


def test_min_bytes_waits_for_that_many(topic: LocalBroker) -> None:
    size = len(sealed())

    async def story() -> FetchResponse:
        asked = request(topic, ("a", 1, 0), max_wait_ms=60_000, min_bytes=2 * size)
        waiting = asyncio.create_task(topic.answer(asked, 12))
        await asyncio.sleep(0)
        topic.partition("a", 1).append_own(sealed())
        await asyncio.sleep(0)
        assert not waiting.done()
        topic.partition("a", 1).append_own(sealed())
        return await waiting  # type: ignore[no-any-return]

    assert rows(topic.run(story())) == [("a", 1, ErrorCode.NONE, 2)]


def test_waiting_fetch_reads_once_it_has_enough(
    topic: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition, size, reads = topic.partition("a", 1), len(sealed()), []
    read = Log.read
    monkeypatch.setattr(Log, "read", lambda log, *args: reads.append(args) or read(log, *args))

    async def story() -> FetchResponse:
        partition.append_own(sealed())
        asked = request(topic, ("a", 1, 0), max_wait_ms=60_000, min_bytes=2 * size)
        waiting = asyncio.create_task(topic.answer(asked, 12))
        await asyncio.sleep(0)
        assert reads == [], "too little to return"
        partition.append_own(sealed())
        return await waiting  # type: ignore[no-any-return]

    assert rows(topic.run(story())) == [("a", 1, ErrorCode.NONE, 2)]
    assert len(reads) == 1


def test_deleting_the_topic_ends_a_waiting_fetch(topic: LocalBroker) -> None:
    from kafkaesque.wire.messages.delete_topics import DeleteTopicsRequest

    async def story() -> FetchResponse:
        asked = request(topic, ("a", 1, 0), max_wait_ms=60_000)
        waiting = asyncio.create_task(topic.answer(asked, 12))
        await asyncio.sleep(0)
        await topic.answer(DeleteTopicsRequest(topic_names=["a"], timeout_ms=1000), 5)
        return await waiting  # type: ignore[no-any-return]

    assert rows(topic.run(story())) == [("a", 1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0)]


# -- sessions -------------------------------------------------------------------------------------


def test_session_returns_only_new_data(topic: LocalBroker) -> None:
    first = fetch(topic, ("a", 0, 6), ("a", 1, 0), session_epoch=0)
    assert first.session_id != 0
    assert [row[:2] for row in rows(first)] == [("a", 0), ("a", 1)]
    session = {"session_id": first.session_id}
    assert rows(fetch(topic, session_epoch=1, **session)) == []
    topic.append("a", 9, index=1)
    assert rows(fetch(topic, session_epoch=2, **session)) == [("a", 1, ErrorCode.NONE, 1)]
    assert rows(fetch(topic, ("a", 1, 1), session_epoch=3, **session)) == []


def test_session_forgets_and_adds_partitions(topic: LocalBroker) -> None:
    first = fetch(topic, ("a", 0, 6), session_epoch=0)
    again = fetch(
        topic,
        ("a", 1, 0),
        session_id=first.session_id,
        session_epoch=1,
        forgotten_topics_data=[
            ForgottenTopic(topic="a", topic_id=first.responses[0].topic_id, partitions=[0])
        ],
    )
    assert rows(again) == [("a", 1, ErrorCode.NONE, 0)]
    topic.append("a", 9)
    assert rows(fetch(topic, session_id=first.session_id, session_epoch=2)) == []


def test_partition_that_a_session_forgot_while_it_waited_is_not_returned(
    topic: LocalBroker,
) -> None:
    first = fetch(topic, ("a", 0, 6), ("a", 1, 0), session_epoch=0)
    session = {"session_id": first.session_id}
    forgotten = ForgottenTopic(topic="a", topic_id=first.responses[0].topic_id, partitions=[0])

    async def story() -> FetchResponse:
        asked = request(topic, session_epoch=1, max_wait_ms=60_000, **session)
        waiting = asyncio.create_task(topic.answer(asked, 12))
        await asyncio.sleep(0)
        assert not waiting.done()
        meanwhile = request(topic, session_epoch=2, forgotten_topics_data=[forgotten], **session)
        assert rows(await topic.answer(meanwhile, 12)) == []
        for index in (0, 1):
            topic.partition("a", index).append_own(sealed())
        return await waiting  # type: ignore[no-any-return]

    assert rows(topic.run(story())) == [("a", 1, ErrorCode.NONE, 1)]


@pytest.mark.parametrize(
    ("session_id", "epoch", "code"),
    [
        (None, 5, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (999, 1, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
    ],
)
def test_wrong_session_is_refused_as_a_whole(
    topic: LocalBroker, session_id: int | None, epoch: int, code: ErrorCode
) -> None:
    first = fetch(topic, ("a", 0, 0), session_epoch=0)
    answer = fetch(topic, session_id=session_id or first.session_id, session_epoch=epoch)
    assert (answer.error_code, answer.session_id, answer.responses) == (code, 0, [])


def test_final_epoch_closes_the_session_and_answers_in_full(topic: LocalBroker) -> None:
    first = fetch(topic, ("a", 0, 0), session_epoch=0)
    last = fetch(topic, ("a", 0, 0), session_id=first.session_id, session_epoch=-1)
    assert last.session_id == 0
    assert rows(last) == [("a", 0, ErrorCode.NONE, 3)]
    gone = fetch(topic, session_id=first.session_id, session_epoch=1)
    assert gone.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_partition_that_had_data_moves_after_the_others(broker: LocalBroker) -> None:
    """A small answer must not starve the partitions after the first (KIP-227)."""
    broker.create("a", 2)
    for index in (0, 1):
        for _ in range(3):
            broker.append("a", 1, index=index)
    first = fetch(broker, ("a", 0, 0), ("a", 1, 0), session_epoch=0, max_bytes=1)
    assert [row[1] for row in rows(first) if row[3]] == [0]
    second = fetch(broker, session_id=first.session_id, session_epoch=1, max_bytes=1)
    assert [row[1] for row in rows(second) if row[3]] == [1]


def test_slow_readers_shrink_answers_to_one_batch(make_broker: MakeBroker) -> None:
    broker = make_broker()
    broker.create("a")
    for _ in range(3):
        broker.append("a", 1)
    broker.context.unsent_room_bytes = lambda: 0
    assert rows(fetch(broker, ("a", 0, 0))) == [("a", 0, ErrorCode.NONE, 1)]


def sealed() -> bytearray:
    from kafkaesque.model.ids import Offset, TimestampMs
    from kafkaesque.records.codec import Record, encode_batch

    return encode_batch([Record(Offset(0), TimestampMs(1), b"k", b"v")])
