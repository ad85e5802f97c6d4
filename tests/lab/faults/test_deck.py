"""Every kind of fault has its turn, in an order that the seed decides."""

from __future__ import annotations

import pytest

from kafkaesque.lab.faults.chance import seeded
from kafkaesque.lab.faults.deck import Deck


@pytest.mark.parametrize("seed", range(20))
def test_as_many_draws_as_there_are_kinds_leave_none_out(seed: int) -> None:
    deck = Deck(("kill", "pause", "cut"), seeded(seed))
    for _ in range(3):
        assert sorted(deck.draw() for _ in range(3)) == ["cut", "kill", "pause"]


def test_order_is_of_chance_and_the_same_for_a_seed() -> None:
    def drawn(seed: int) -> list[str]:
        deck = Deck(("kill", "pause", "cut"), seeded(seed))
        return [deck.draw() for _ in range(9)]

    assert drawn(3) == drawn(3)
    assert len({tuple(drawn(seed)) for seed in range(10)}) > 1
