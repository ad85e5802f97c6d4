from __future__ import annotations

from kafkaesque.pipeline.jobs.repeats import drop_repeats


def test_row_that_a_restarted_batch_sent_again_is_dropped(spark) -> None:
    def headers(batch: int, row: str) -> list[tuple[str, bytes]]:
        return [
            ("kafkaesque-query", b"q/1"),
            ("kafkaesque-batch", str(batch).encode()),
            ("kafkaesque-row", row.encode()),
        ]

    rows = [
        ("t", 0, 0, headers(1, "0/0")),
        ("t", 0, 1, headers(1, "0/1")),
        ("t", 0, 2, headers(1, "0/0")),
        ("t", 0, 3, headers(2, "0/0")),
        ("t", 0, 4, None),
        ("t", 0, 5, None),
    ]
    schema = "topic string, partition int, offset long, headers array<struct<key: string, value: binary>>"
    kept = drop_repeats(spark.createDataFrame(rows, schema)).select("offset").collect()
    assert len(kept) == 5
    assert {1, 3, 4, 5} < {row["offset"] for row in kept}
