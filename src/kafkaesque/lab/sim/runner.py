"""Runs many independent seeds, one after the other or in several processes."""

from __future__ import annotations

import logging
import multiprocessing
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from kafkaesque.lab.sim.ground_truth import InvariantViolation
from kafkaesque.lab.sim.profile import Profile
from kafkaesque.lab.sim.simulation import Simulation
from kafkaesque.model.errors import KafkaError


class SeedResult(NamedTuple):
    """The result of one seed."""

    seed: int
    violation: str | None
    """Name and detail of the invariant that broke; None if none did."""
    digest: str
    """Hash of the trace: the same for the same seed."""
    events: int
    committed: int
    elections: int
    seconds: float


def run_seed(seed: int) -> SeedResult:
    """Simulate one seed."""
    return show_seed(seed, None)


def show_seed(
    seed: int, show: Callable[[str], None] | None, profile: Profile | None = None
) -> SeedResult:
    """Simulate one seed; `show` gets every event as a line."""
    # The product logs every simulated disk fault.
    logging.getLogger("kafkaesque").setLevel(logging.CRITICAL + 1)
    started = time.perf_counter()
    simulation = Simulation(seed, profile, show)
    violation = None
    try:
        simulation.run()
    except InvariantViolation as error:
        violation = str(error)
    except KafkaError as error:
        violation = f"an unhandled error: {error!r}"
    except Exception:  # noqa: BLE001 - whatever the product raises under faults is a finding
        violation = f"an unexpected error: {traceback.format_exc(limit=-4)}"
    groups = simulation.observer.groups.values()
    return SeedResult(
        seed,
        violation,
        simulation.trace.digest(),
        simulation.schedule.event_count,
        sum(group.committed_index for group in groups),
        sum(len(group.leaders) for group in groups),
        time.perf_counter() - started,
    )


def run_seeds(seeds: Iterable[int], jobs: int = 1) -> Iterator[SeedResult]:
    """Yields the outcomes as they arrive."""
    if jobs <= 1:
        for seed in seeds:
            yield run_seed(seed)
        return
    context = multiprocessing.get_context("spawn")
    with context.Pool(jobs) as pool:
        yield from pool.imap_unordered(run_seed, seeds, chunksize=4)


def replay_command(seed: int) -> str:
    return f"kafkaesque sim --seed {seed} --trace"
