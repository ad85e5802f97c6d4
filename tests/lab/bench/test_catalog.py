"""The catalogue: every entry can be imported, and the command lists it."""

from __future__ import annotations

import importlib
import json

import pytest
from click.testing import CliRunner

from kafkaesque.cli.bench import bench
from kafkaesque.lab.bench.catalog import CATALOG


@pytest.mark.parametrize("name", CATALOG)
def test_every_entry_can_be_run(name: str) -> None:
    assert callable(
        importlib.import_module(f"kafkaesque.lab.bench.suites.{name.replace('-', '_')}").run
    )


def test_list_names_every_benchmark() -> None:
    outcome = CliRunner().invoke(bench, ["list", "--json"])
    assert outcome.exit_code == 0
    assert list(json.loads(outcome.stdout)) == list(CATALOG)


def test_unknown_peer_is_a_usage_error() -> None:
    outcome = CliRunner().invoke(bench, ["latency", "--peers", "ours,pulsar"])
    assert outcome.exit_code == 2
    assert "pulsar" in outcome.stderr
