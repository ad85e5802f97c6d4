from __future__ import annotations

from datetime import UTC, datetime, timedelta

from kafkaesque.pipeline.jobs.archive import (
    LOG_SCHEMA,
    alerts,
    compare,
    lost_counts,
    offset_counts,
)

DUE = datetime(2026, 11, 16, tzinfo=UTC)


def test_each_partition_gets_its_verdict(spark) -> None:
    held = {
        "good": [0, 1, 2],
        "double": [0, 1, 1],
        "hole": [0, 2],
        "compacted": [0, 2],
        "behind": [5, 6],
        "anew": [0, 1, 2, 3],
        "gone": [0],
    }
    rows = spark.createDataFrame(
        [(topic, 0, offset) for topic, offsets in held.items() for offset in offsets],
        "topic string, partition int, offset long",
    )
    older, younger = DUE - timedelta(seconds=1), DUE + timedelta(seconds=1)
    log = spark.createDataFrame(
        [
            ("good", 0, 0, 3, 3, None),
            ("double", 0, 0, 2, 2, None),
            ("hole", 0, 0, 3, 3, None),
            ("compacted", 0, 0, 4, 3, None),
            ("behind", 0, 5, 9, 7, younger),
            ("anew", 0, 0, 2, 2, None),
            ("empty", 0, 0, 0, 0, None),
            ("waits", 0, 0, 4, 0, older),
        ],
        LOG_SCHEMA,
    )
    records = spark.createDataFrame(
        [("hole", 0, 0), ("hole", 0, 1), ("compacted", 0, 2)],
        "topic string, partition int, offset long",
    )
    report = compare(offset_counts(rows), log, lost_counts(records, rows), DUE)
    found = {row["topic"]: (row["verdict"], row["lost"], row["behind"]) for row in report.collect()}
    assert found == {
        "good": ("ok", 0, 0),
        "double": ("rows are doubled", 0, 0),
        "hole": ("rows are missing", 1, 0),
        "compacted": ("ok", 0, 0),
        "behind": ("ok", 0, 2),
        "anew": ("the table is ahead of the log: the topic was recreated", 0, 0),
        "gone": ("the log has no such partition", 0, 0),
        "empty": ("ok", 0, 0),
        "waits": ("the table is behind", 0, 4),
    }
    wrong = {row["topic"] for row in alerts(report).collect()}
    assert wrong == {"double", "hole", "anew", "gone", "waits"}
