"""Table maintenance by the report `upkeep` and by the query that writes the table."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip(
    "pyspark", reason="pyspark is missing: make setup, or pip install kafkaesque-platform[spark]"
)

from tests.pipeline.operate.stage import MINUTE_MS, NOON_MS, post, table

from kafkaesque.pipeline.operate.context import PipelineSettings
from kafkaesque.pipeline.operate.maintenance import is_due


@pytest.mark.parametrize(("every", "due"), [(0, []), (1, [0, 1, 2, 3, 4, 5]), (3, [2, 5])])
def test_maintenance_is_due_after_every_n_batches(every: int, due: list[int]) -> None:
    settings = PipelineSettings(upkeep_every_batches=every)
    assert [batch for batch in range(6) if is_due(settings, batch)] == due


@pytest.mark.parametrize(("every", "files"), [(3, 3), (0, 8)])
def test_query_merges_the_files_of_its_table_between_batches(
    bench, produce, every: int, files: int
) -> None:
    """Four batches of one row in each of two partitions make eight files; the first three are merged."""
    from dataclasses import replace

    from deltalake import DeltaTable

    from kafkaesque.pipeline.operate.progress import Metrics
    from kafkaesque.pipeline.operate.streaming import QuerySupervisor, Trigger

    produce(bench.topic, [post(i) for i in range(8)])
    settings = replace(bench.context.settings, upkeep_every_batches=every)
    context = replace(bench.context, settings=settings)
    supervisor = QuerySupervisor(context, Trigger(once=True, rows_max=2, restarts_max=5), Metrics())
    (result,) = supervisor.run([bench.query("archive")])
    assert result.failure is None
    assert len(DeltaTable(context.table("archive")).file_uris()) == files
    rows = [(row["partition"], row["offset"]) for row in table(bench, "archive").collect()]
    assert sorted(rows) == [(index, offset) for index in range(2) for offset in range(4)]


def test_failed_maintenance_does_not_stop_the_query(
    bench, tmp_path: Any, caplog: pytest.LogCaptureFixture
) -> None:
    from datetime import UTC, datetime

    from kafkaesque.pipeline.operate.maintenance import maintain_query_tables
    from kafkaesque.pipeline.operate.queries import Table

    broken = bench.context.table("broken") / "_delta_log"
    broken.mkdir(parents=True)
    (broken / f"{0:020}.json").write_text("garbage")
    maintain_query_tables([Table("broken"), Table("absent")], bench.context, datetime.now(tz=UTC))
    assert "maintenance of table broken failed" in caplog.text
    assert "absent" not in caplog.text


def test_upkeep_merges_small_files_and_deletes_expired_rows(bench, produce) -> None:
    from dataclasses import replace
    from datetime import UTC, datetime

    from kafkaesque.pipeline.operate.context import PipelineSettings
    from kafkaesque.pipeline.operate.reports import upkeep

    day_ms = 24 * 60 * MINUTE_MS
    for day in range(3):
        for _ in range(2):
            at_ms = NOON_MS + day * day_ms
            rows = [{**post(number), "timestamp": at_ms} for number in (0, 1)]
            produce(bench.topic, rows)
            bench.run("archive")
    now = datetime.fromtimestamp((NOON_MS + 3 * day_ms) / 1000, tz=UTC)
    settings = PipelineSettings(archive_keep_days=2, archive_pattern=bench.topic)
    report = upkeep(replace(bench.context, settings=settings), now)
    (row,) = [row for row in report.rows if row["table"] == "archive"]
    assert row["rows_expired"] == 4
    assert row["files_after"] == 2 < row["files_before"]
    assert table(bench, "archive").count() == 8
    bench.run("archive")
    assert table(bench, "archive").count() == 8
