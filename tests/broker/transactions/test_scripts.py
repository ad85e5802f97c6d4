"""Recorded scripts of the coordinator's rules. `REWRITE=1 pytest tests/broker/transactions` rewrites them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.broker.transactions.interpreter import Interpreter

from kafkaesque.testing.script import run_script

SCRIPTS = sorted((Path(__file__).parents[2] / "scripts" / "transactions").glob("*.txt"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_script_gives_the_recorded_output(path: Path) -> None:
    run_script(path, Interpreter().execute, rewrite="REWRITE" in os.environ)
