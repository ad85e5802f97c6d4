"""A planted bug, and the search for a seed that finds it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, NamedTuple

from kafkaesque.lab.sim.profile import Profile
from kafkaesque.lab.sim.runner import show_seed

SEEDS_MAX: Final = 400
_ABSENT: Any = object()


class Patches:
    """Patches classes of the product; the end of the context undoes all patches, last first."""

    def __init__(self) -> None:
        self._before: list[tuple[Any, str, Any]] = []

    def __enter__(self) -> Patches:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        while self._before:
            target, name, value = self._before.pop()
            if value is _ABSENT:
                delattr(target, name)
            else:
                setattr(target, name, value)

    def set(self, target: Any, name: str, value: Any) -> None:
        """Set `target.name = value` until the end; an inherited attribute becomes inherited again.

        Raises AttributeError for a name that `target` lacks: a planted bug must change something.
        """
        getattr(target, name)
        self._before.append((target, name, vars(target).get(name, _ABSENT)))
        setattr(target, name, value)


@dataclass(frozen=True, slots=True)
class Planted:
    """A change that removes one rule from the product.

    The rule matters in `profile`; None means the profiles of the seeds. `first_seed` finds the bug soon,
    so that a test need not search.
    """

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
    """How many seeds it took."""
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
