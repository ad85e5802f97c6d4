"""What leaders said of committed ends: which answers contradict each other."""

from __future__ import annotations

import pytest

from kafkaesque.faults.watermarks import Sample, judge_samples

PLACE = ("orders", 0)


def said(asked_us: int, node: int, epoch: int, offset: int, told_us: int | None = None) -> Sample:
    return Sample(asked_us, told_us or asked_us + 5, node, PLACE, epoch, offset)


@pytest.mark.parametrize(
    ("samples", "wrong"),
    [
        ([said(0, 1, 1, 10), said(10, 1, 1, 10), said(20, 2, 2, 11)], ""),
        ([said(0, 1, 1, 10), said(10, 2, 2, 9)], "high watermark went back"),
        ([said(0, 2, 2, 10), said(10, 1, 1, 10)], "leader epoch went back"),
        ([said(0, 1, 1, 10), said(10, 2, 1, 11)], "one epoch has two leaders"),
        # Asked before the other answer was there: either may have been first.
        ([said(0, 1, 1, 10, told_us=20), said(10, 2, 2, 9)], ""),
        # An answer that came late counts from when it came.
        ([said(0, 1, 1, 10, told_us=20), said(21, 2, 2, 9)], "high watermark went back"),
    ],
)
def test_answers_that_contradict_each_other_are_found(samples: list[Sample], wrong: str) -> None:
    found = judge_samples(samples)
    assert len(found) == (1 if wrong else 0)
    assert all(wrong in text for text in found)


def test_partitions_have_nothing_to_do_with_one_another() -> None:
    other = said(10, 2, 1, 3)._replace(place=("orders", 1))
    assert judge_samples([said(0, 1, 5, 10), other]) == []


def test_only_some_of_many_findings_are_told() -> None:
    stale = [said(10 + number, 2, 1, 3) for number in range(100)]
    assert 0 < len(judge_samples([said(0, 1, 1, 10), *stale])) < 20
