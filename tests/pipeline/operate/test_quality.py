"""The rules of the report `quality`: which part of the log the archive should hold."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip(
    "pyspark", reason="pyspark is missing: make setup, or pip install kafkaesque-platform[spark]"
)

from kafkaesque.pipeline.operate.reports import (
    CheckpointRange,
    ExpectedRange,
    TableOffsets,
    expected_range,
)

KEY = ("t", 0)


@pytest.mark.parametrize(
    ("began", "reached", "held", "expected"),
    [
        # The whole log: nothing, a part, and all of it was archived.
        ({}, {}, None, (10, 10)),
        ({KEY: 0}, {KEY: 15}, TableOffsets(10, 14, 5), (10, 15)),
        ({KEY: 0}, {KEY: 20}, TableOffsets(10, 18, 9), (10, 20)),
        # It began in the middle; the table has a batch that is not committed in the checkpoint.
        ({KEY: 12}, {}, TableOffsets(12, 16, 5), (12, 17)),
        # There is no checkpoint, only the table.
        (None, {}, TableOffsets(13, 14, 2), (13, 15)),
        (None, {}, None, (10, 10)),
    ],
)
def test_table_should_hold_the_log_from_its_start_to_the_last_committed_batch(
    began, reached, held, expected
) -> None:
    found = expected_range(KEY, (10, 20), CheckpointRange(began, reached), held)
    assert (found.start, found.reached) == expected
    assert (found.log_start, found.log_end) == (10, 20)


@pytest.mark.parametrize(
    ("held", "is_dense"),
    [
        (TableOffsets(10, 19, 10), True),
        (TableOffsets(0, 25, 26), True),
        (TableOffsets(10, 19, 9), False),
        (TableOffsets(11, 19, 9), False),
        (TableOffsets(10, 18, 9), False),
        (None, False),
    ],
)
def test_range_is_dense_only_with_every_offset(held: TableOffsets | None, is_dense: bool) -> None:
    assert ExpectedRange(10, 20, 10, 20).is_dense(held) is is_dense


def test_checkpoint_range_is_read_from_the_checkpoint(tmp_path: Path) -> None:
    assert CheckpointRange.of(tmp_path) == CheckpointRange(None, {})
    (tmp_path / "kafkaesque").mkdir()
    (tmp_path / "kafkaesque" / "initial-offsets-0.json").write_text('{"t": {"0": 3}}')
    for name in ("offsets", "commits"):
        (tmp_path / name).mkdir()
    for batch, end in enumerate((5, 7, 9)):
        text = f'v1\n{json.dumps({"batchWatermarkMs": 0})}\n{{"t":{{"0":{end}}}}}'
        (tmp_path / "offsets" / str(batch)).write_text(text)
    for batch in range(2):
        (tmp_path / "commits" / str(batch)).write_text("v1\n{}")
    assert CheckpointRange.of(tmp_path) == CheckpointRange({KEY: 3}, {KEY: 7})
