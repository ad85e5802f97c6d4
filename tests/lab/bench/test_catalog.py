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


@pytest.mark.parametrize("peers", ["ours,../ours", "../a/before,../b/before", "./kafka"])
def test_peers_with_one_name_are_a_usage_error(peers: str) -> None:
    outcome = CliRunner().invoke(bench, ["latency", "--peers", peers])
    assert outcome.exit_code == 2
    assert "two peers would be called" in outcome.stderr
