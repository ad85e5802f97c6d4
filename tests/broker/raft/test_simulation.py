"""Random networks and disks against the rules: invariants hold under faults, progress after them."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest
from tests.broker.raft.checkers import Violation
from tests.broker.raft.mutants import MUTANTS, Mutant
from tests.broker.raft.simulation import CALM, LEASES, STORM, Faults, Simulation

from kafkaesque.model.errors import InvariantBroken

SEEDS_PER_TEST = 25
PROFILES = {"calm": CALM, "storm": STORM, "leases": LEASES}


def faults_of(profile: str, seed: int) -> Faults:
    return replace(
        PROFILES[profile],
        quiesce=seed % 4 == 1,
        membership=(0, 0, 5, 40)[seed % 4],
        compaction=seed % 2 == 1,
    )


@pytest.mark.parametrize("first_seed", range(0, 100, SEEDS_PER_TEST))
@pytest.mark.parametrize("profile", PROFILES)
def test_group_under_faults_keeps_every_invariant_and_heals(profile: str, first_seed: int) -> None:
    for seed in range(first_seed, first_seed + SEEDS_PER_TEST):
        simulation = Simulation(seed, 5 if seed % 8 == 3 else 3, faults_of(profile, seed))
        try:
            simulation.run(80)
            simulation.heal()
        except (Violation, InvariantBroken) as error:
            raise AssertionError(f"{profile} seed {seed}: {error}") from error


FOUND = [
    pytest.param(59, 5, replace(LEASES, membership=40, compaction=True), id="removed-must-stand"),
    pytest.param(274, 3, replace(STORM, membership=40), id="removed-must-stand-too"),
    pytest.param(91286, 3, LEASES, id="restarted-follower-learns-no-commit"),
]
"""Seeds that found an error once. Kept, although their runs change with the rules."""


@pytest.mark.parametrize(("seed", "node_count", "faults"), FOUND)
def test_seed_that_found_an_error_passes(seed: int, node_count: int, faults: Faults) -> None:
    simulation = Simulation(seed, node_count, faults)
    simulation.run(100)
    simulation.heal()


def test_simulation_does_something() -> None:
    """Elections, commits and crashes happen, or the tests above would show nothing."""
    terms = commits = 0
    for seed in range(10):
        simulation = Simulation(seed, 3, STORM)
        simulation.run(80)
        terms += max(simulation.checkers.leaders, default=0)
        commits += simulation.checkers.committed_index
    assert terms >= 20
    assert commits >= 100


def test_same_seed_gives_the_same_run() -> None:
    def trace() -> str:
        simulation = Simulation(11, 3, replace(STORM, membership=10, compaction=True))
        simulation.run(80)
        return hashlib.sha256(repr(simulation.trace).encode()).hexdigest()

    assert trace() == trace()


@pytest.mark.pure
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_planted_bug_is_found(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.plant(monkeypatch)
    for seed in range(mutant.hint, mutant.hint + 300):
        simulation = Simulation(seed, 3, mutant.faults)
        try:
            simulation.run(mutant.tick_count)
            if mutant.heals:
                simulation.heal()
        except (Violation, InvariantBroken):
            return
    pytest.fail(f"{mutant.name} was not found")
