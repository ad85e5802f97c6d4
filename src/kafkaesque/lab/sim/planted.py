"""Known bugs, planted one at a time: each takes one rule away, as someone might who found it
needless. That each is found, and how soon, says what the simulation is worth.

The bugs themselves are in `planted_raft`, `planted_storage` and `planted_transactions`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from kafkaesque.lab.sim.patches import Patches
from kafkaesque.lab.sim.profile import Profile
from kafkaesque.lab.sim.runner import show_seed

SEEDS_MAX: Final = 400


@dataclass(frozen=True, slots=True)
class Planted:
    """`profile` is where the rule matters; None leaves it to the seeds. `first_seed` is one that is
    known to find it soon, so that a test need not search."""

    plant: Callable[[Patches], None]
    profile: Profile | None = None
    first_seed: int = 0

    @property
    def name(self) -> str:
        return self.plant.__name__


class Found(NamedTuple):
    name: str
    seed: int
    seeds: int
    """How many it took."""
    seconds: float
    violation: str | None
    """None if it was not found."""


def find(bug: Planted, first_seed: int | None = None, seeds_max: int = SEEDS_MAX) -> Found:
    """Run seeds with the bug until one fails."""
    start = bug.first_seed if first_seed is None else first_seed
    began = time.perf_counter()
    with Patches() as patches:
        bug.plant(patches)
        for seed in range(start, start + seeds_max):
            outcome = show_seed(seed, None, bug.profile)
            if outcome.violation is not None:
                seconds = time.perf_counter() - began
                return Found(bug.name, seed, seed - start + 1, seconds, outcome.violation)
    return Found(bug.name, start, seeds_max, time.perf_counter() - began, None)
