"""Recorded scripts of a group. `REWRITE=1 pytest tests/broker/raft/test_scripts.py` records them again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.broker.raft.interpreter import Interpreter

from kafkaesque.testing.script import run_script

SCRIPTS = sorted((Path(__file__).parents[2] / "scripts" / "raft").glob("*.txt"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_raft_script_gives_its_recorded_output(path: Path) -> None:
    run_script(path, Interpreter(), rewrite=bool(os.environ.get("REWRITE")))


def test_there_are_scripts() -> None:
    assert len(SCRIPTS) >= 12
