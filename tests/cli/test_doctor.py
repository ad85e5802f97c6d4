from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.cli.conftest import Run

from kafkaesque.cli.failures import ExitCode
from kafkaesque.cli.main import cli
from kafkaesque.cli.main import run as run_here


def test_a_healthy_kafka_passes(command: Run, kafka: str, tmp_path: Path) -> None:
    outcome = command("doctor", "--data", str(tmp_path), "--json")
    assert outcome.json["fail"] == 0, outcome.out
    assert outcome.code == ExitCode.OK
    areas = {finding["area"] for finding in outcome.json["findings"]}
    assert areas >= {"bootstrap", "listeners", "ports", "versions", "limits", "clock", "data"}


def test_api_versions_are_listed_by_name(run: Run) -> None:
    assert "Produce" in run("doctor", "--verbose").out


def test_a_closed_port_fails_with_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert run_here(["doctor", "-b", f"127.0.0.1:{port}"]) == ExitCode.FAILED
    out = capsys.readouterr().out
    assert "FAIL" in out
    assert "fix:" in out


def test_every_problem_has_a_fix() -> None:
    result = CliRunner().invoke(cli, ["doctor", "-b", "no-such-host.invalid:1", "--json"])
    findings = json.loads(result.output)["findings"]
    assert all((f["status"] == "ok") == (f["fix"] is None) for f in findings)
