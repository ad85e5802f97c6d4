"""`kafkaesque sim`: output, kept seeds, exit code."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kafkaesque.cli.sim import sim
from kafkaesque.lab.sim.planted import PLANTED
from kafkaesque.lab.sim.planted.bug import Patches

pytestmark = pytest.mark.timeout(900)

AT_ONCE = ("vote_before_it_is_synced", "journal_is_not_synced")
"""Bugs that any seed finds within its first events."""


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(sim, arguments)


@pytest.fixture
def planted_bug() -> Iterator[None]:
    """Every seed fails."""
    with Patches() as patches:
        next(bug for bug in PLANTED if bug.name == AT_ONCE[0]).plant(patches)
        yield


def test_figures_are_the_last_line(tmp_path: Path) -> None:
    kept = tmp_path / "kept.txt"
    result = invoke("--seeds", "3", "--first-seed", "4", "--json", "--keep", str(kept))
    figures = json.loads(result.stdout.splitlines()[-1])
    assert (figures["seeds"], figures["violations"]) == (3, 0)
    assert figures["seeds_per_hour"] > 0
    assert result.exit_code == 0
    assert not kept.exists()


def test_planted_bugs_are_found_and_the_median_time_is_reported() -> None:
    bugs = ("--bug", AT_ONCE[0], "--bug", AT_ONCE[1])
    program = [sys.executable, "-m", "kafkaesque.cli.main", "sim", "--planted", *bugs]
    result = subprocess.run(program, capture_output=True, text=True, check=True)
    *each, summary = result.stdout.splitlines()
    assert len(each) == 2
    for name, line in zip(AT_ONCE, each, strict=True):
        assert re.match(rf"{name} +seed 1 \([0-9.]+ s\): ", line)
    assert re.fullmatch(r"2 of 2 found, median time [0-9.]+ s, median seed 1", summary)


def test_bug_without_planted_is_a_usage_error() -> None:
    result = invoke("--bug", AT_ONCE[0])
    assert result.exit_code == 2
    assert "--bug needs --planted" in result.stderr


@pytest.mark.pure
@pytest.mark.usefixtures("planted_bug")
def test_failing_seed_is_kept_once_with_its_violation(tmp_path: Path) -> None:
    kept = tmp_path / "kept.txt"
    kept.write_text("# seed, what it was\n5 something of long ago\n")
    result = invoke("--seeds", "2", "--first-seed", "4", "--keep", str(kept))
    assert result.exit_code == 1
    assert "  again: kafkaesque sim --seed 4 --trace" in result.stdout
    assert f"  kept in {kept}" in result.stdout
    assert f"  already in {kept}" in result.stdout
    comment, old, new = kept.read_text().splitlines()
    assert (comment, old) == ("# seed, what it was", "5 something of long ago")
    assert new.startswith("4 vote on disk: ")
    invoke("--seed", "6", "--keep", str(kept))
    assert kept.read_text().splitlines()[3].startswith("6 vote on disk: ")


@pytest.mark.pure
@pytest.mark.usefixtures("planted_bug")
def test_failing_seed_is_kept_in_the_working_directory_by_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert invoke("--seeds", "1").exit_code == 1
    assert (tmp_path / ".kafkaesque-sim-failures.txt").read_text().startswith("0 ")
