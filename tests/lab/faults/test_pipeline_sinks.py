from __future__ import annotations

import pytest

pytest.importorskip(
    "pyarrow", reason="pyarrow is missing: make setup, or pip install kafkaesque-platform[spark]"
)

from kafkaesque.lab.faults.pipeline.sinks import compare

WANTED = {("t", 0, offset) for offset in range(4)}


@pytest.mark.parametrize(
    ("offsets", "found"),
    [
        ([0, 1, 2, 3], (4, 0, 0, 0)),
        ([0, 1, 3], (3, 1, 0, 0)),
        ([0, 1, 2, 2, 3, 3], (6, 0, 2, 0)),
        ([0, 1, 2, 3, 9], (5, 0, 0, 1)),
    ],
)
def test_sink_is_complete_only_with_every_record_once(
    offsets: list[int], found: tuple[int, ...]
) -> None:
    report = compare("s", WANTED, [("t", 0, offset) for offset in offsets])
    assert (report.rows, report.missing, report.doubled, report.foreign) == found
    assert report.is_whole == (found[1:] == (0, 0, 0))
