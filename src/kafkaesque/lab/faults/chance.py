"""Chance from a seed, so that a run can be told to try the same things again."""

from __future__ import annotations

import random


def seeded(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311 (reproducible is the point)
