"""The results of many seeds: sums, the file of failed seeds, and how soon planted bugs were found."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median

from kafkaesque.lab.sim.planted.bug import Found
from kafkaesque.lab.sim.runner import SeedResult


def summarize(outcomes: Sequence[SeedResult], seconds: float, jobs: int) -> dict[str, object]:
    """The JSON fields of `sim --json`."""
    failed = [outcome.seed for outcome in outcomes if outcome.violation is not None]
    return {
        "seeds": len(outcomes),
        "violations": len(failed),
        "seeds_per_hour": round(len(outcomes) / max(seconds, 1e-9) * 3600),
        "jobs": jobs,
        "failed_seeds": failed,
        "events": sum(outcome.events for outcome in outcomes),
        "committed": sum(outcome.committed for outcome in outcomes),
        "elections": sum(outcome.elections for outcome in outcomes),
    }


def keep_seed(path: Path, seed: int, violation: str) -> bool:
    """Appends a line in the format of tests/lab/sim/regression_seeds.txt: the seed and the violation.

    Returns False if the file already has the seed.
    """
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    if any(line.split()[:1] == [str(seed)] for line in lines):
        return False
    with path.open("a", encoding="utf-8") as file:
        file.write(f"{seed} {' '.join(violation.split())}\n")
    return True


def summarize_planted(results: Sequence[Found]) -> dict[str, object]:
    """The JSON fields of `sim --planted --json`; the medians are None if no bug was found."""
    found = [one for one in results if one.violation is not None]
    return {
        "planted": len(results),
        "found": len(found),
        "missed": [one.name for one in results if one.violation is None],
        "median_seconds_to_find": round(median(one.seconds for one in found), 2) if found else None,
        "median_seeds_to_find": median(one.seeds for one in found) if found else None,
    }
