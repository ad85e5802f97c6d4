"""`kafkaesque broker` as scripts see it."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

COMMAND = [sys.executable, "-m", "kafkaesque.cli.main", "broker"]
PATIENCE_S = 60


def test_addresses_and_log_of_a_broker_are_json_if_asked_for(tmp_path: Path) -> None:
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
                assert process.wait(PATIENCE_S) == 0
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
    told = [event["message"] for event in events if event["level"] == "warning"]
    assert [text for text in told if "closing connection from 127.0.0.1" in text]
