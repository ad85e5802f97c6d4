"""`kafkaesque broker` as scripts see it."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from kafkaesque.cli.failures import ExitCode

COMMAND = [sys.executable, "-m", "kafkaesque.cli.main", "broker"]
PATIENCE_S = 60


def test_json_prints_addresses_and_log_as_json(tmp_path: Path) -> None:
    words = ["--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0", "--node-id", "7"]
    options = ["--http-listen", "", "--json", "--log-format", "json", "--end-with-stdin"]
    with (tmp_path / "log").open("w+") as log:
        with subprocess.Popen(
            [*COMMAND, *words, *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                facts = json.loads(process.stdout.readline())
                host, port = facts.pop("kafka").split(":")
                with socket.create_connection((host, int(port)), PATIENCE_S) as stranger:
                    stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
                    with suppress(ConnectionResetError):
                        assert stranger.recv(1) == b""
                process.stdin.close()
                assert process.wait(PATIENCE_S) == ExitCode.OK
                assert process.stdout.read() == b""
            finally:
                process.kill()
        log.seek(0)
        events = [json.loads(line) for line in log]
    assert facts == {
        "http": None,
        "coordination": None,
        "text": None,
        "node": 7,
        "pid": process.pid,
        "data": str(tmp_path / "data"),
    }
    warnings = [event["message"] for event in events if event["level"] == "warning"]
    assert [text for text in warnings if "closing connection from 127.0.0.1" in text]


@pytest.mark.parametrize(
    "flag", ["--listen", "--http-listen", "--coordination-listen", "--text-listen"]
)
def test_listener_whose_address_is_in_use_is_named(tmp_path: Path, flag: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = f"127.0.0.1:{other.getsockname()[1]}"
        words = ["--data", str(tmp_path), "--listen", "127.0.0.1:0", flag, taken]
        outcome = subprocess.run(
            [*COMMAND, *words], capture_output=True, text=True, check=False, timeout=PATIENCE_S
        )
    assert outcome.returncode == ExitCode.FAILED
    assert f"cannot listen on {taken}: the address is in use" in outcome.stderr
    assert f"{flag} 127.0.0.1:0 picks a free port" in outcome.stderr


def test_two_data_directories_are_refused(tmp_path: Path) -> None:
    dirs = f"{tmp_path}/one,{tmp_path}/two"
    words = ["--set", f"log.dirs={dirs}", "--listen", "127.0.0.1:0", "--end-with-stdin"]
    outcome = subprocess.run(
        [*COMMAND, *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert outcome.returncode == ExitCode.USAGE
    assert f"log.dirs: one directory is supported, not '{dirs}'" in outcome.stderr
    assert list(tmp_path.iterdir()) == []


def test_data_directory_that_cannot_be_created_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    words = ["--data", str(tmp_path / "file" / "data"), "--listen", "127.0.0.1:0"]
    outcome = subprocess.run(
        [*COMMAND, *words], capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    assert outcome.returncode == ExitCode.FAILED
    assert f"write the data directory {tmp_path}/file/data" in outcome.stderr
    assert "--data selects another one" in outcome.stderr
