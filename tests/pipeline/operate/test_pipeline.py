"""Named queries from topic to table: run, run again, stopped, backfilled, replayed, reported."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient
from tests.pipeline.operate.stage import (
    MINUTE_MS,
    NOON_MS,
    deletion,
    ids,
    post,
    table,
    transactions,
)
from tests.waiting import eventually

from kafkaesque.pipeline.errors import CheckpointInUse, CheckpointLost


def test_posts_are_written_once_despite_repeats_deletions_and_invalid_records(
    bench, produce, broker
) -> None:
    produce(bench.topic, [post(1), post(2), post(1), {"value": b"garbage", "partition": 0}])
    bench.run("posts")
    assert ids(table(bench, "posts")) == ["p1", "p2"]
    produce(bench.topic, [post(2), post(3), deletion(1), deletion(3)])
    bench.run("posts")
    assert ids(table(bench, "posts")) == ["p2"]
    letters = table(bench, "posts_dead").collect()
    assert [(row["partition"], row["reason"]) for row in letters] == [(0, "not JSON of an event")]
    assert bytes(letters[0]["value"]) == b"garbage"


@pytest.mark.parametrize("engine", ["python", "jvm"])
def test_aborted_records_are_not_written_to_tables(bench, broker, request, engine: str) -> None:
    from dataclasses import replace

    from kafkaesque.pipeline.operate.progress import Metrics
    from kafkaesque.pipeline.operate.streaming import QuerySupervisor, Trigger

    if engine == "jvm":
        request.getfixturevalue("connector")
    transactions(broker.bootstrap_servers, bench.topic, commits="cac")
    context = replace(bench.context, engine=engine)
    supervisor = QuerySupervisor(context, Trigger(once=True, restarts_max=5), Metrics())
    (result,) = supervisor.run([bench.query("archive")])
    assert result.failure is None
    values = sorted(bytes(row["value"]) for row in table(bench, "archive").collect())
    assert values == [b"c0 0", b"c0 1", b"c0 2", b"c2 0", b"c2 1", b"c2 2"]


def committed(broker, group: str, topic: str) -> dict[int, int]:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    wanted = ConsumerGroupTopicPartitions(group)
    found = admin.list_consumer_group_offsets([wanted])[group].result()
    return {item.partition: item.offset for item in found.topic_partitions if item.topic == topic}


def test_progress_is_committed_to_a_group_and_written_to_the_status(bench, produce, broker) -> None:
    """Offsets come from the progress of a batch, not from the source's `commit`, which is a batch late."""
    from kafkaesque.model.address import Address
    from kafkaesque.pipeline.kafka.cluster import ClusterSettings
    from kafkaesque.pipeline.operate.status import statuses, with_lag

    produce(bench.topic, [post(i) for i in range(10)])
    bench.run("archive")
    assert committed(broker, "pipeline.archive", bench.topic) == {0: 5, 1: 5}
    (status,) = statuses(bench.context.data)
    assert (status["query"], status["state"], status["input_rows"]) == ("archive", "stopped", 10)
    assert status["end_offsets"] == {bench.topic: {"0": 5, "1": 5}}
    produce(bench.topic, [post(i) for i in range(3)])
    host, _, port = broker.bootstrap_servers.rpartition(":")
    assert with_lag(status, ClusterSettings((Address(host, int(port)),)))["lag_records"] == 3
    feed = bench.context.data.feed("archive").read_text().splitlines()
    assert json.loads(feed[-1])["batch"] == 0


def test_trends_are_ranked_once_their_window_is_complete(bench, produce) -> None:
    rows = [post(i, minute=0, tag="a" if i < 6 else "b") for i in range(9)]
    produce(bench.topic, [*rows, post(100, minute=60, tag="late")])
    bench.run("trends")
    trends = table(bench, "trends").where(f"window_start = timestamp_millis({NOON_MS})")
    found = [
        (row["rank"], row["hashtag"], row["posts"]) for row in trends.orderBy("rank").collect()
    ]
    assert found == [(1, "a", 6), (2, "b", 3)]


def test_live_trends_are_sent_to_the_topic_as_they_change(bench, produce, broker) -> None:
    produce(bench.topic, [post(1, tag="x")])
    bench.run("trends-live")
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "t",
            "auto.offset.reset": "earliest",
            "fetch.queue.backoff.ms": 1,
        }
    )
    consumer.subscribe([bench.topic])
    messages = []
    while len(messages) < 11:
        messages += consumer.consume(11, 1.0)
    consumer.close()
    values = [json.loads(item.value()) for item in messages if b"window_start_ms" in item.value()]
    assert len(values) == 10
    assert {value["hashtag"] for value in values} == {"x"}


def test_query_stops_between_batches_and_resumes_there(bench, produce) -> None:
    from kafkaesque.pipeline.operate.progress import Metrics
    from kafkaesque.pipeline.operate.status import request_stop
    from kafkaesque.pipeline.operate.streaming import QuerySupervisor, Trigger

    produce(bench.topic, [post(i) for i in range(20)])
    supervisor = QuerySupervisor(bench.context, Trigger(rows_max=2), Metrics())
    results: list[Any] = []
    runner = threading.Thread(
        target=lambda: results.extend(supervisor.run([bench.query("archive")]))
    )
    runner.start()
    eventually(bench.context.data.feed("archive").exists, "the first batch is done")
    request_stop(bench.context.data, "archive", 60)
    runner.join()
    assert [result.failure for result in results] == [None]
    bench.run("archive")
    rows = table(bench, "archive")
    assert rows.count() == 20
    assert rows.select("partition", "offset").distinct().count() == 20


def test_second_start_of_a_running_query_is_rejected(bench, produce) -> None:
    from kafkaesque.pipeline.operate.streaming import Trigger, start_query

    running = start_query(bench.query("archive"), bench.context, Trigger(interval_s=60))
    with pytest.raises(CheckpointInUse):
        start_query(bench.query("archive"), bench.context, Trigger(once=True))
    running.streaming.stop()
    assert running.close() is None


def test_lost_checkpoint_raises_an_error_and_duplicates_no_row(bench, produce) -> None:
    import shutil

    produce(bench.topic, [post(i) for i in range(4)])
    bench.run("archive")
    shutil.rmtree(bench.context.data.checkpoint("archive"))
    with pytest.raises(CheckpointLost, match="write its rows twice"):
        bench.run("archive")
    assert table(bench, "archive").count() == 4


def test_failed_query_reports_its_error_and_the_others_continue(bench, produce) -> None:
    from dataclasses import replace

    from kafkaesque.pipeline.operate.progress import Metrics
    from kafkaesque.pipeline.operate.streaming import QuerySupervisor, Trigger

    def broken(_rows: Any, _identity: Any, _context: Any) -> None:
        raise RuntimeError("the disk is gone")

    produce(bench.topic, [post(1)])
    bad = replace(bench.query("posts"), write=broken)
    supervisor = QuerySupervisor(bench.context, Trigger(once=True), Metrics())
    results = {item.query: item for item in supervisor.run([bad, bench.query("archive")])}
    assert "the disk is gone" in results["posts"].failure
    assert results["archive"].failure is None


def test_backfill_of_a_range_replaces_its_rows_and_no_others(bench, produce) -> None:
    from kafkaesque.pipeline.operate.backfill import LogRange, backfill, swap

    produce(bench.topic, [post(i, minute=i) for i in range(10)])
    bench.run("archive")
    before = table(bench, "archive").count()
    wanted = LogRange(start_ms=NOON_MS + 2 * MINUTE_MS, end_ms=NOON_MS + 6 * MINUTE_MS)
    side = backfill(bench.query("archive"), bench.context, wanted)
    assert side.rows() == {"archive": 4}
    assert table(bench, "archive").count() == before
    assert swap(side, bench.context) == {"archive": 4}
    rows = table(bench, "archive")
    assert rows.count() == 10
    assert rows.select("partition", "offset").distinct().count() == 10
    bench.run("archive")
    assert table(bench, "archive").count() == 10


def test_replay_gives_the_same_rows_as_the_live_query(bench, produce) -> None:
    from kafkaesque.pipeline.operate.backfill import LogRange, replay, swap

    produce(bench.topic, [post(i, minute=i) for i in range(8)])
    bench.run("posts")
    live = ids(table(bench, "posts"))
    side = replay(bench.query("posts"), bench.context, LogRange(), rows_max=3)
    assert side.rows()["posts"] == 8
    swap(side, bench.context)
    assert ids(table(bench, "posts")) == live


def test_chat_backlog_lists_undelivered_and_unread_messages(bench, produce) -> None:
    from datetime import UTC, datetime

    from kafkaesque.events.chat import MessageQueued, MessageSent
    from kafkaesque.events.envelope import Envelope, encode
    from kafkaesque.pipeline.operate.reports import chat_backlog

    def event(kind: Any, message: str) -> dict[str, Any]:
        body = kind(
            message_id=message, conversation_id="c", sender="ann", recipient="bob", sent_ms=NOON_MS
        )
        envelope = Envelope(f"{message}/{kind.STAGE}", NOON_MS, "chat", body)
        return {"value": encode(envelope), "partition": 0, "timestamp": NOON_MS}

    produce(bench.topic, [event(MessageSent, "1"), event(MessageQueued, "1")])
    bench.run("chat-stages")
    assert table(bench, "chat_dead").count() == 0
    now = datetime.fromtimestamp((NOON_MS + 25 * 60 * MINUTE_MS) / 1000, tz=UTC)
    report = chat_backlog(bench.context, now)
    assert [(row["recipient"], row["messages"]) for row in report.rows] == [("bob", 1)]
    assert [row["message_id"] for row in report.alerts] == ["1"]
