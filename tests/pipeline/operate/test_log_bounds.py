"""Which part of the log a table should hold."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip(
    "pyspark", reason="pyspark is missing: make setup, or pip install kafkaesque-platform[spark]"
)

from kafkaesque.pipeline.operate.log_bounds import Bounds, Held, Taken, bound

KEY = ("t", 0)


@pytest.mark.parametrize(
    ("began", "reached", "held", "expected"),
    [
        # The whole log, of which nothing was taken in, some, and all.
        ({}, {}, None, (10, 10)),
        ({KEY: 0}, {KEY: 15}, Held(10, 14, 5), (10, 15)),
        ({KEY: 0}, {KEY: 20}, Held(10, 18, 9), (10, 20)),
        # It began in the middle; a batch is in the table whose end the checkpoint does not know.
        ({KEY: 12}, {}, Held(12, 16, 5), (12, 17)),
        # No checkpoint is left: the table alone tells.
        (None, {}, Held(13, 14, 2), (13, 15)),
        (None, {}, None, (10, 10)),
    ],
)
def test_table_should_hold_what_lies_between_begin_and_last_finished_batch(
    began, reached, held, expected
) -> None:
    found = bound(KEY, (10, 20), Taken(began, reached), held)
    assert (found.start, found.reached) == expected
    assert (found.log_start, found.log_end) == (10, 20)


@pytest.mark.parametrize(
    ("held", "is_dense"),
    [
        (Held(10, 19, 10), True),
        (Held(0, 25, 26), True),
        (Held(10, 19, 9), False),
        (Held(11, 19, 9), False),
        (Held(10, 18, 9), False),
        (None, False),
    ],
)
def test_log_is_read_only_where_an_offset_is_lacking(held: Held | None, is_dense: bool) -> None:
    assert Bounds(10, 20, 10, 20).is_dense(held) is is_dense


def test_what_was_taken_stands_in_the_checkpoint(tmp_path: Path) -> None:
    assert Taken.of(tmp_path) == Taken(None, {})
    (tmp_path / "kafkaesque").mkdir()
    (tmp_path / "kafkaesque" / "initial-offsets-0.json").write_text('{"t": {"0": 3}}')
    for name in ("offsets", "commits"):
        (tmp_path / name).mkdir()
    for batch, end in enumerate((5, 7, 9)):
        text = f'v1\n{json.dumps({"batchWatermarkMs": 0})}\n{{"t":{{"0":{end}}}}}'
        (tmp_path / "offsets" / str(batch)).write_text(text)
    for batch in range(2):
        (tmp_path / "commits" / str(batch)).write_text("v1\n{}")
    assert Taken.of(tmp_path) == Taken({KEY: 3}, {KEY: 7})
