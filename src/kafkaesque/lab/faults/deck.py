"""Which kind of fault comes next: a shuffled deck, so that every kind has its turn. No I/O."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class Deck(Generic[T]):
    """Of each `len(cards)` draws from the first on, every card is one. Dice would leave some out."""

    def __init__(self, cards: Sequence[T], chance: random.Random) -> None:
        self._cards = cards
        self._chance = chance
        self._left: list[T] = []

    def draw(self) -> T:
        if not self._left:
            self._left = self._chance.sample(self._cards, len(self._cards))
        return self._left.pop()
