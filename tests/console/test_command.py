"""`kafkaesque console` and `kafkaesque top` from the command line."""

from __future__ import annotations

import json
import signal
import stat
import subprocess
import sys
import urllib.request
from pathlib import Path

import click
import pytest

from kafkaesque.cli.console import read_settings
from kafkaesque.console.operator_password import (
    PASSWORD_VARIABLE,
    password_path,
    read_password,
)
from kafkaesque.testing import Broker

COMMAND = [sys.executable, "-m", "kafkaesque.cli.main"]
WITHIN_S = 120

pytestmark = pytest.mark.timeout(600)


def test_a_random_password_is_created_once_with_mode_600(tmp_path: Path) -> None:
    first = read_password(tmp_path, None, {})
    assert len(first) >= 20
    assert read_password(tmp_path, None, {}) == first
    assert stat.S_IMODE(password_path(tmp_path).stat().st_mode) == 0o600


def test_a_configured_password_is_used(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("from a file\n")
    assert read_password(tmp_path, file, {PASSWORD_VARIABLE: "x"}) == "from a file"
    assert read_password(tmp_path, None, {PASSWORD_VARIABLE: "from outside"}) == "from outside"
    with pytest.raises(ValueError, match=PASSWORD_VARIABLE):
        read_password(tmp_path, None, {PASSWORD_VARIABLE: " "})


def test_settings_come_from_the_environment_and_from_flags() -> None:
    environment = {"KAFKAESQUE_CONSOLE_INTERVAL_MS": "500", "KAFKAESQUE_CONSOLE_PRIVATE": "true"}
    settings = read_settings(environment, ("console.interval.ms=250",))
    assert (settings.interval_ms, settings.is_private) == (250, True)
    with pytest.raises(click.UsageError, match=r"console\.interval\.ms"):
        read_settings({}, ("console.intervall.ms=1",))
    with pytest.raises(click.UsageError, match="at least 100"):
        read_settings({}, ("console.interval.ms=1",))


def test_an_address_beyond_loopback_needs_insecure(tmp_path: Path) -> None:
    done = subprocess.run(
        [*COMMAND, "console", "--host", "0.0.0.0", "--data", str(tmp_path)],
        capture_output=True, text=True, timeout=WITHIN_S,
    )  # fmt: skip
    assert done.returncode == 2
    assert "--insecure" in done.stderr


def test_the_process_reports_ready_serves_and_stops(broker: Broker, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*COMMAND, "console", "-b", broker.bootstrap_servers, "--port", "0", "--data", str(tmp_path)],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    words = process.stdout.readline().split()
    facts = dict(word.split("=", 1) for word in words[1:])
    assert words[0] == "ready"
    assert json.loads((tmp_path / "console.json").read_text())["http"] == facts["http"]
    with urllib.request.urlopen(f"http://{facts['http']}/healthz", timeout=WITHIN_S) as answer:
        assert answer.read() == b"ok\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait(WITHIN_S) == 0
    process.stdout.close()
    assert not (tmp_path / "console.json").exists()


def test_top_prints_once_as_json_and_as_text(broker: Broker) -> None:
    asked = [*COMMAND, "top", "-b", broker.bootstrap_servers, "--once"]
    done = subprocess.run([*asked, "--json"], capture_output=True, text=True, timeout=WITHIN_S)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert "orders" in {row["name"] for row in document["topics"]}
    assert [row["status"] for row in document["groups"] if row["name"] == "billing"] == ["stopped"]
    picture = subprocess.run(asked, capture_output=True, text=True, timeout=WITHIN_S)
    assert "RECORDS/S" in picture.stdout
    assert "billing" in picture.stdout
