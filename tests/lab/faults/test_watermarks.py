"""What leaders said of committed ends: which answers contradict each other."""

from __future__ import annotations

import threading
from itertools import count

import pytest

from kafkaesque.broker.partitions.rules.open_transactions import OpenTransactions
from kafkaesque.broker.transactions.types import NEW_FLOW
from kafkaesque.lab.faults.watermarks import WatermarkSample, WatermarkSampler, check_samples
from kafkaesque.lab.faults.wire_producer import WireProducer
from kafkaesque.testing import Broker

PLACE = ("orders", 0)
ROUND_TICKS = 4
"""A watch looks at the clock before and behind each of its two questions."""


def said(
    requested_us: int, node: int, epoch: int, offset: int, answered_us: int | None = None
) -> WatermarkSample:
    return WatermarkSample(
        requested_us, answered_us or requested_us + 5, node, PLACE, epoch, offset
    )


def stable(requested_us: int, node: int, epoch: int, offset: int) -> WatermarkSample:
    return said(requested_us, node, epoch, offset)._replace(is_stable=True)


@pytest.mark.parametrize(
    ("samples", "wrong"),
    [
        ([said(0, 1, 1, 10), said(10, 1, 1, 10), said(20, 2, 2, 11)], ""),
        ([said(0, 1, 1, 10), said(10, 2, 2, 9)], "high watermark went back"),
        ([said(0, 2, 2, 10), said(10, 1, 1, 10)], "leader epoch went back"),
        ([said(0, 1, 1, 10), said(10, 2, 1, 11)], "one epoch has two leaders"),
        # Asked before the other answer was there: either may have been first.
        ([said(0, 1, 1, 10, answered_us=20), said(10, 2, 2, 9)], ""),
        # A transaction holds back what is stable, and what is committed goes on.
        ([stable(0, 1, 1, 5), said(10, 1, 1, 10), stable(20, 1, 1, 5), said(30, 2, 2, 12)], ""),
        ([said(0, 1, 1, 10), stable(10, 2, 2, 9)], ""),
        ([stable(0, 1, 1, 10), stable(10, 2, 2, 9)], "last stable offset went back"),
        ([stable(0, 1, 1, 10), said(10, 1, 1, 9)], "last stable offset passed the high watermark"),
        ([stable(0, 1, 1, 10), said(3, 1, 1, 9)], ""),
        # An answer that came late counts from when it came.
        ([said(0, 1, 1, 10, answered_us=20), said(21, 2, 2, 9)], "high watermark went back"),
    ],
)
def test_answers_that_contradict_each_other_are_found(
    samples: list[WatermarkSample], wrong: str
) -> None:
    found = check_samples(samples)
    assert len(found) == (1 if wrong else 0)
    assert all(wrong in text for text in found)


def test_partitions_have_nothing_to_do_with_one_another() -> None:
    other = said(10, 2, 1, 3)._replace(place=("orders", 1))
    assert check_samples([said(0, 1, 5, 10), other]) == []


def test_only_some_of_many_findings_are_told() -> None:
    stale = [said(10 + number, 2, 1, 3) for number in range(100)]
    assert 0 < len(check_samples([said(0, 1, 1, 10), *stale])) < 20


def watch(broker: Broker, topic: str) -> list[WatermarkSample]:
    """What a watch hears in two rounds or more."""
    ticks, is_enough = count(), threading.Event()

    def now_us() -> int:
        tick = next(ticks)
        if tick > 2 * ROUND_TICKS:
            is_enough.set()
        return tick

    watching = WatermarkSampler([broker.bootstrap_servers], [(topic, 0)], now_us)
    try:
        assert is_enough.wait(60)
    finally:
        samples = watching.end()
    return samples


def test_watch_hears_both_offsets_and_finds_a_broker_that_forgets_what_is_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Broker() as broker:
        broker.create_topic("orders")
        producer = WireProducer([broker.bootstrap_servers], "tx", NEW_FLOW, 30)
        try:
            producer.init()
            assert producer.send(("orders", 0), b"open") == 0
            samples = watch(broker, "orders")
            assert {(one.is_stable, one.offset) for one in samples} == {(True, 0), (False, 1)}
            assert check_samples(samples) == []
            monkeypatch.setattr(OpenTransactions, "stable_offset", lambda _, mark: mark + 1)
            found = check_samples(watch(broker, "orders"))
            assert found
            assert all("last stable offset passed the high watermark" in text for text in found)
        finally:
            producer.close()
