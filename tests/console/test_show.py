"""`kafkaesque show`: the console's data on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.console.running_console import RunningConsole, write
from tests.waiting import eventually

from kafkaesque.cli.main import run
from kafkaesque.cli.show import CONSOLE_VARIABLE
from kafkaesque.console.api_client import CONSOLE_DEFAULT, ConsoleClient
from kafkaesque.console.operator_password import password_path
from kafkaesque.testing import Broker


def test_trends_as_table_and_as_json(
    console: RunningConsole, capsys: pytest.CaptureFixture[str]
) -> None:
    eventually(lambda: console.get("/api/trends")["tags"], "trends are read")
    assert run(["show", "trends", "--console", console.url, "--rows", "2"]) == 0
    title, *rows = capsys.readouterr().out.splitlines()
    assert title.split()[:2] == ["HASHTAG", "POSTS"]
    assert [row.split()[:2] for row in rows] == [["kafka", "40"], ["raft", "30"]]
    assert run(["show", "trends", "--console", console.url, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tags"][0]["hashtag"] == "kafka"


def test_gateways_and_their_metrics(
    console: RunningConsole, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["show", "gateways", "--console", console.url]) == 0
    said = capsys.readouterr()
    assert "connections" in said.out
    assert "no gateway is registered" in said.err
    assert run(["show", "gateways", "--console", console.url, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["figures"]["drained"] == 0


def test_events_are_listed_by_kind(
    console: RunningConsole, broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    write(broker.bootstrap_servers, "shown-by-command", [b"x"])
    console.wait_for_topics("shown-by-command")
    eventually(
        lambda: "shown-by-command" in str(console.get("/api/events?kind=topic")), "it is an event"
    )
    assert (
        run(["show", "events", "--console", console.url, "--kind", "topic", "--rows", "500"]) == 0
    )
    assert "shown-by-command" in capsys.readouterr().out
    assert run(["show", "events", "--console", console.url, "--kind", "fault", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["events"] == []


def test_console_and_password_are_found_by_data_directory(tmp_path: Path) -> None:
    assert ConsoleClient(None, tmp_path).url == CONSOLE_DEFAULT
    home = tmp_path / "console"
    home.mkdir()
    (home / "console.json").write_text(json.dumps({"http": "127.0.0.1:1234", "pid": "1"}))
    password_path(home).write_text("secret\n")
    own = ConsoleClient(None, tmp_path)
    assert own.url == "http://127.0.0.1:1234"
    assert own.headers() == {"Authorization": "Bearer secret"}
    assert ConsoleClient(None, tmp_path, "given").headers() == {"Authorization": "Bearer given"}
    # The kept password is not sent to another console.
    assert ConsoleClient("http://elsewhere:1", tmp_path).headers() == {}


def test_missing_console_is_reported_with_a_hint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CONSOLE_VARIABLE, "http://127.0.0.1:1")
    assert run(["show", "trends", "--data", str(tmp_path)]) == 3
    assert "--console URL" in capsys.readouterr().err
