"""Tables kept in shape: by a report, and by the query that writes them."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip(
    "pyspark", reason="pyspark is missing: make setup, or pip install kafkaesque-platform[spark]"
)

from tests.pipeline.operate.stage import MINUTE_MS, NOON_MS, post, table

from kafkaesque.pipeline.operate.context import Knobs
from kafkaesque.pipeline.operate.upkeep import is_due


@pytest.mark.parametrize(("every", "due"), [(0, []), (1, [0, 1, 2, 3, 4, 5]), (3, [2, 5])])
def test_upkeep_is_due_after_each_so_many_batches(every: int, due: list[int]) -> None:
    knobs = Knobs(upkeep_every_batches=every)
    assert [batch for batch in range(6) if is_due(knobs, batch)] == due


@pytest.mark.parametrize(("every", "files"), [(3, 3), (0, 8)])
def test_query_merges_the_files_of_its_table_between_batches(
    bench, produce, every: int, files: int
) -> None:
    """Four batches of a row of each of two partitions make eight files; three of them, then one."""
    from dataclasses import replace

    from deltalake import DeltaTable

    from kafkaesque.pipeline.operate.progress import Metrics
    from kafkaesque.pipeline.operate.running import Supervisor, Trigger

    produce(bench.topic, [post(i) for i in range(8)])
    knobs = replace(bench.context.knobs, upkeep_every_batches=every)
    context = replace(bench.context, knobs=knobs)
    supervisor = Supervisor(context, Trigger(once=True, rows_max=2, restarts_max=5), Metrics())
    (outcome,) = supervisor.run([bench.query("archive")])
    assert outcome.failure is None
    assert len(DeltaTable(context.table("archive")).file_uris()) == files
    rows = [(row["partition"], row["offset"]) for row in table(bench, "archive").collect()]
    assert sorted(rows) == [(index, offset) for index in range(2) for offset in range(4)]


def test_table_that_cannot_be_kept_in_shape_does_not_stop_its_query(
    bench, tmp_path: Any, caplog: pytest.LogCaptureFixture
) -> None:
    from datetime import UTC, datetime

    from kafkaesque.pipeline.operate.catalog import Table
    from kafkaesque.pipeline.operate.upkeep import keep_own_tables

    broken = bench.context.table("broken") / "_delta_log"
    broken.mkdir(parents=True)
    (broken / f"{0:020}.json").write_text("rubbish")
    keep_own_tables([Table("broken"), Table("absent")], bench.context, datetime.now(tz=UTC))
    assert "table broken is not kept in shape" in caplog.text
    assert "absent" not in caplog.text


def test_upkeep_merges_small_files_and_deletes_what_is_too_old(bench, produce) -> None:
    from dataclasses import replace
    from datetime import UTC, datetime

    from kafkaesque.pipeline.operate.context import Knobs
    from kafkaesque.pipeline.operate.reports import upkeep

    day_ms = 24 * 60 * MINUTE_MS
    for day in range(3):
        for _ in range(2):
            at_ms = NOON_MS + day * day_ms
            rows = [{**post(number), "timestamp": at_ms} for number in (0, 1)]
            produce(bench.topic, rows)
            bench.run("archive")
    now = datetime.fromtimestamp((NOON_MS + 3 * day_ms) / 1000, tz=UTC)
    knobs = Knobs(archive_keep_days=2, archive_pattern=bench.topic)
    report = upkeep(replace(bench.context, knobs=knobs), now)
    (row,) = [row for row in report.rows if row["table"] == "archive"]
    assert row["rows_expired"] == 4
    assert row["files_after"] == 2 < row["files_before"]
    assert table(bench, "archive").count() == 8
    bench.run("archive")
    assert table(bench, "archive").count() == 8
