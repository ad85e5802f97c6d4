"""The chat runs, shortened and with few clients; `kafkaesque fault run` uses a thousand."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkaesque.lab.faults.fault_run import FaultRunOptions
from kafkaesque.lab.faults.report import FaultReport
from kafkaesque.lab.faults.runner import run_by_name

CLIENTS = 20
ZEROS = ("messages_lost", "twice", "reordered", "refused", "results_missing", "results_twice")
pytestmark = [pytest.mark.story, pytest.mark.timeout(600)]


@pytest.fixture(autouse=True)
def _few_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKAESQUE_CHAT_CLIENTS", str(CLIENTS))
    monkeypatch.setenv("KAFKAESQUE_CHAT_RATE", "20")


def perform(name: str, keep: Path) -> FaultReport:
    progress: list[str] = []
    report, history = run_by_name(name, FaultRunOptions(rounds=1), progress.append, keep)
    assert report.passed, "\n".join([*progress, *report.lines(history)])
    assert {zero: report.notes[zero] for zero in ZEROS} == dict.fromkeys(ZEROS, 0)
    assert report.notes["clients"] == CLIENTS
    assert int(report.notes["messages_acknowledged"]) > 0
    assert report.notes["messages_received"] == report.notes["messages_acknowledged"]
    return report


def test_no_client_notices_a_killed_back_end(tmp_path: Path) -> None:
    report = perform("chat-backend-kill", tmp_path)
    assert (report.notes["kills"], report.notes["disconnects"]) == (1, 0)


def test_clients_of_a_killed_gateway_resume_on_another(tmp_path: Path) -> None:
    report = perform("gateway-kill", tmp_path)
    assert report.notes["kills"] == 1
    assert int(report.notes["disconnects"]) > 0
    assert int(report.notes["resumed"]) > CLIENTS, "each did once when it came"


def test_new_version_is_routed_to_live_and_no_client_is_disconnected(tmp_path: Path) -> None:
    report = perform("chat-backend-upgrade", tmp_path)
    assert (report.notes["route_changes"], report.notes["disconnects"]) == (1, 0)
    assert int(report.notes["commands_of_new_version"]) > 0
