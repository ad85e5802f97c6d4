"""Checks of sampled watermarks and stable offsets: which answers contradict each other."""

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
"""The sampler reads the clock before and after each of its two requests."""


def sample(
    requested_us: int, node: int, epoch: int, offset: int, answered_us: int | None = None
) -> WatermarkSample:
    return WatermarkSample(
        requested_us, answered_us or requested_us + 5, node, PLACE, epoch, offset
    )


def stable_sample(requested_us: int, node: int, epoch: int, offset: int) -> WatermarkSample:
    return sample(requested_us, node, epoch, offset)._replace(is_stable=True)


@pytest.mark.parametrize(
    ("samples", "wrong"),
    [
        ([sample(0, 1, 1, 10), sample(10, 1, 1, 10), sample(20, 2, 2, 11)], ""),
        ([sample(0, 1, 1, 10), sample(10, 2, 2, 9)], "high watermark went back"),
        ([sample(0, 2, 2, 10), sample(10, 1, 1, 10)], "leader epoch went back"),
        ([sample(0, 1, 1, 10), sample(10, 2, 1, 11)], "one epoch has two leaders"),
        # Requested before the other answer arrived: either may have been first.
        ([sample(0, 1, 1, 10, answered_us=20), sample(10, 2, 2, 9)], ""),
        # An open transaction holds back the stable offset while the high watermark advances.
        (
            [
                stable_sample(0, 1, 1, 5),
                sample(10, 1, 1, 10),
                stable_sample(20, 1, 1, 5),
                sample(30, 2, 2, 12),
            ],
            "",
        ),
        ([sample(0, 1, 1, 10), stable_sample(10, 2, 2, 9)], ""),
        ([stable_sample(0, 1, 1, 10), stable_sample(10, 2, 2, 9)], "last stable offset went back"),
        (
            [stable_sample(0, 1, 1, 10), sample(10, 1, 1, 9)],
            "last stable offset passed the high watermark",
        ),
        ([stable_sample(0, 1, 1, 10), sample(3, 1, 1, 9)], ""),
        # A late answer counts from its arrival.
        ([sample(0, 1, 1, 10, answered_us=20), sample(21, 2, 2, 9)], "high watermark went back"),
    ],
)
def test_answers_that_contradict_each_other_are_found(
    samples: list[WatermarkSample], wrong: str
) -> None:
    found = check_samples(samples)
    assert len(found) == (1 if wrong else 0)
    assert all(wrong in text for text in found)


def test_partitions_are_checked_independently() -> None:
    other = sample(10, 2, 1, 3)._replace(place=("orders", 1))
    assert check_samples([sample(0, 1, 5, 10), other]) == []


def test_number_of_reported_findings_is_limited() -> None:
    stale = [sample(10 + number, 2, 1, 3) for number in range(100)]
    assert 0 < len(check_samples([sample(0, 1, 1, 10), *stale])) < 20


def sample_broker(broker: Broker, topic: str) -> list[WatermarkSample]:
    """The samples of two rounds or more."""
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


def test_sampler_detects_a_broker_that_loses_open_transactions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Broker() as broker:
        broker.create_topic("orders")
        producer = WireProducer([broker.bootstrap_servers], "tx", NEW_FLOW, 30)
        try:
            producer.init()
            assert producer.send(("orders", 0), b"open") == 0
            samples = sample_broker(broker, "orders")
            assert {(one.is_stable, one.offset) for one in samples} == {(True, 0), (False, 1)}
            assert check_samples(samples) == []
            monkeypatch.setattr(OpenTransactions, "stable_offset", lambda _, mark: mark + 1)
            found = check_samples(sample_broker(broker, "orders"))
            assert found
            assert all("last stable offset passed the high watermark" in text for text in found)
        finally:
            producer.close()
