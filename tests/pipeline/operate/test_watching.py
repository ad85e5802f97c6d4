from __future__ import annotations

import pytest

pytest.importorskip(
    "pyspark", reason="pyspark is missing: make setup, or pip install kafkaesque-platform[spark]"
)

from kafkaesque.pipeline.operate.watching import done_records

START = {("t", 0): 10, ("t", 1): 0}
END = {("t", 0): 20, ("t", 1): 5}


@pytest.mark.parametrize(
    ("reached", "done"),
    [({}, 0), ({"t": {"0": 10, "1": 0}}, 0), ({"t": {"0": 15, "1": 2}}, 7),
     ({"t": {"0": 99, "1": 5}, "u": {"0": 3}}, 15)],
)  # fmt: skip
def test_records_of_the_range_are_counted_and_none_beyond(
    reached: dict[str, dict[str, int]], done: int
) -> None:
    progress = {"batchId": 1, "timestamp": "now", "sources": [{"endOffset": reached or None}]}
    assert done_records(progress, START, END) == done
