"""The report `quality`: the archive compared with the log."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from confluent_kafka import Consumer

pytest.importorskip(
    "pyspark", reason="pyspark is missing: make setup, or pip install kafkaesque-platform[spark]"
)

from deltalake import DeltaTable
from tests.pipeline.operate.stage import NOON_MS, post, table, transactions

NOW = datetime.fromtimestamp(NOON_MS / 1000, tz=UTC)


def test_quality_passes_a_complete_archive_and_finds_a_missing_row(bench, produce, broker) -> None:
    from kafkaesque.pipeline.operate.reports import quality

    produce(bench.topic, [post(i) for i in range(6)])
    bench.run("archive")
    report = quality(bench.context, NOW)
    assert report.alerts == []
    assert [(row["partition"], row["rows"], row["verdict"]) for row in report.rows] == [
        (0, 3, "ok"),
        (1, 3, "ok"),
    ]
    DeltaTable(bench.context.table("archive")).delete("partition = 0 AND offset = 1")
    report = quality(bench.context, NOW)
    assert [(row["partition"], row["verdict"]) for row in report.alerts] == [
        (0, "rows are missing")
    ]
    kept = table(bench, "quality")
    assert kept.where("verdict = 'rows are missing'").count() == 1
    alerts = [json.loads(item.value()) for item in read_all(bench, broker) if item.key()]
    assert [(item["alert"], item["partition"], item["lost"]) for item in alerts] == [
        ("quality", 0, 1)
    ]


def read_all(bench: Any, broker: Any) -> list[Any]:
    """Every record of the test's topic, which is its alerts topic too."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "reader",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "fetch.queue.backoff.ms": 1,
        }
    )
    consumer.subscribe([bench.topic])
    found, ended = [], 0
    while ended < 2:
        for message in consumer.consume(100, 1.0):
            if message.error() is not None:
                ended += 1
            else:
                found.append(message)
    consumer.close()
    return found


def test_quality_does_not_count_markers_and_aborted_records_as_lost(bench, broker) -> None:
    from kafkaesque.pipeline.operate.reports import quality

    transactions(broker.bootstrap_servers, bench.topic, commits="caac")
    bench.run("archive")
    report = quality(bench.context, NOW)
    assert report.alerts == []
    found = [(row["rows"], row["gaps"], row["lost"], row["behind"]) for row in report.rows]
    # c0 c0 c0 marker, twice (three aborted, marker), then c3: the last marker is not a record either.
    assert found == [(6, 9, 0, 0), (0, 0, 0, 0)]
    DeltaTable(bench.context.table("archive")).delete("offset IN (1, 14)")
    (alert,) = quality(bench.context, NOW).alerts
    assert (alert["verdict"], alert["lost"]) == ("rows are missing", 2)


def test_quality_finds_rows_missing_at_both_ends(bench, produce) -> None:
    from kafkaesque.pipeline.operate.reports import quality

    produce(bench.topic, [post(i) for i in range(8)])
    bench.run("archive")
    DeltaTable(bench.context.table("archive")).delete("offset = 0 OR offset = 3")
    report = quality(bench.context, NOW)
    assert [(row["lost"], row["behind"]) for row in report.alerts] == [(2, 0), (2, 0)]


def test_quality_alerts_for_a_topic_that_was_never_archived(bench, produce, broker) -> None:
    from kafkaesque.pipeline.operate.reports import quality

    produce(bench.topic, [post(0), post(1)])
    bench.run("archive")
    unseen = f"{bench.topic}-unseen"
    broker.create_topic(unseen, 1, retention_ms=-1)
    produce(unseen, [{**post(0), "partition": 0} for _ in range(3)])
    settings = replace(bench.context.settings, archive_pattern=f"{bench.topic}.*")
    context = replace(bench.context, settings=settings)
    fresh = quality(context, NOW + timedelta(minutes=59))
    assert fresh.alerts == []
    assert {row["topic"]: row["behind"] for row in fresh.rows} == {bench.topic: 0, unseen: 3}
    (alert,) = quality(context, NOW + timedelta(minutes=61)).alerts
    assert (alert["topic"], alert["verdict"]) == (unseen, "the table is behind")


def test_quality_ignores_rows_that_the_archive_has_expired(bench, produce) -> None:
    from kafkaesque.pipeline.operate.reports import quality, upkeep

    day_ms = 24 * 3_600_000
    produce(bench.topic, [{**post(i), "timestamp": NOON_MS + i * day_ms} for i in range(4)])
    bench.run("archive")
    context = replace(bench.context, settings=replace(bench.context.settings, archive_keep_days=1))
    now = NOW + timedelta(days=3)
    (row,) = [row for row in upkeep(context, now).rows if row["table"] == "archive"]
    assert row["rows_expired"] == 2
    report = quality(context, now)
    assert [(row["rows"], row["verdict"]) for row in report.rows] == [(1, "ok"), (1, "ok")]
