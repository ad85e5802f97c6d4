"""Every planted bug is found, as a violation of an invariant, like a real bug would be."""

from __future__ import annotations

import pytest

from kafkaesque.lab.sim.planted import PLANTED
from kafkaesque.lab.sim.planted.bug import Planted, find

BUGS_MIN = 15


def test_there_are_enough_bugs() -> None:
    assert len({bug.name for bug in PLANTED}) == len(PLANTED) >= BUGS_MIN


@pytest.mark.pure
@pytest.mark.parametrize("bug", PLANTED, ids=lambda bug: bug.name)
def test_planted_bug_is_found(bug: Planted) -> None:
    found = find(bug)
    assert found.violation is not None, f"{bug.name} was not found in {found.seeds} seeds"
    assert "an unexpected error" not in found.violation
