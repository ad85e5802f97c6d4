"""Is the copy the original? And may a copy be too short to say anything?"""

from __future__ import annotations

import pytest

from kafkaesque.lab.faults.copying import Judged, Tally, judge

SOURCE = [b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize(
    ("target", "judged"),
    [
        (b"0 1 2 3", Judged(0, 0, 0, 0)),
        (b"0 1 3", Judged(1, 0, 0, 0)),
        (b"0 1 1 2 3", Judged(0, 1, 0, 0)),
        (b"0 2 1 3", Judged(0, 0, 0, 1)),
        (b"0 1 2 3 0 1", Judged(0, 2, 0, 1)),
        (b"0 1 2 3 9", Judged(0, 0, 1, 0)),
        (b"", Judged(4, 0, 0, 0)),
    ],
)
def test_every_difference_is_counted(target: bytes, judged: Judged) -> None:
    found = judge(SOURCE, target.split())
    assert found == judged
    assert found.is_exact is (target.split() == SOURCE)


def test_partitions_are_summed() -> None:
    tally = Tally([Judged(1, 0, 0, 2), Judged(3, 1, 0, 0)])
    assert [tally.of(name) for name in ("missing", "duplicate", "out_of_order")] == [4, 1, 2]
