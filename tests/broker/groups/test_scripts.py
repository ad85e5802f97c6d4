"""Recorded scripts of group rules. `REWRITE=1 pytest tests/broker/groups/test_scripts.py` rewrites them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.broker.groups.interpreter import Interpreter

from kafkaesque.testing.script import run_script

SCRIPTS = sorted((Path(__file__).parents[2] / "scripts" / "groups").glob("*.txt"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_group_script_gives_its_recorded_output(path: Path) -> None:
    run_script(path, Interpreter(), rewrite=bool(os.environ.get("REWRITE")))


def test_there_are_scripts() -> None:
    assert len(SCRIPTS) >= 12
