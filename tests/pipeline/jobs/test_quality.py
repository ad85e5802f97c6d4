from __future__ import annotations

from kafkaesque.pipeline.jobs.quality import LOG_SCHEMA, alerts, compare, offset_counts


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
    log = spark.createDataFrame(
        [
            ("good", 0, 0, 3, False),
            ("double", 0, 0, 2, False),
            ("hole", 0, 0, 3, False),
            ("compacted", 0, 0, 3, True),
            ("behind", 0, 5, 9, False),
            ("anew", 0, 0, 2, False),
            ("empty", 0, 0, 0, False),
        ],
        LOG_SCHEMA,
    )
    report = compare(offset_counts(rows), log)
    found = {row["topic"]: (row["verdict"], row["behind"]) for row in report.collect()}
    assert found == {
        "good": ("ok", 0),
        "double": ("rows are doubled", 0),
        "hole": ("rows are missing", 0),
        "compacted": ("ok", 0),
        "behind": ("ok", 2),
        "anew": ("the table is ahead of the log: the topic was made anew", 0),
        "gone": ("the log has no such partition", 0),
        "empty": ("ok", 0),
    }
    assert {row["topic"] for row in alerts(report).collect()} == {"double", "hole", "anew", "gone"}
