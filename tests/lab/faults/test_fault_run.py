"""A shuffle bag draws every kind of fault in turn, in an order that the seed decides."""

from __future__ import annotations

from random import Random

import pytest

from kafkaesque.lab.faults.fault_run import ShuffleBag


@pytest.mark.parametrize("seed", range(20))
def test_each_kind_is_drawn_once_per_round(seed: int) -> None:
    bag = ShuffleBag(("kill", "pause", "cut"), Random(seed))
    for _ in range(3):
        assert sorted(bag.draw() for _ in range(3)) == ["cut", "kill", "pause"]


def test_order_is_random_and_the_same_for_a_seed() -> None:
    def drawn(seed: int) -> list[str]:
        bag = ShuffleBag(("kill", "pause", "cut"), Random(seed))
        return [bag.draw() for _ in range(9)]

    assert drawn(3) == drawn(3)
    assert len({tuple(drawn(seed)) for seed in range(10)}) > 1
