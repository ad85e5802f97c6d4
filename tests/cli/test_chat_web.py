"""`kafkaesque chat web` as scripts see it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

from kafkaesque.cli.failures import ExitCode

COMMAND = [sys.executable, "-m", "kafkaesque.cli.main", "chat", "web"]
PATIENCE_S = 60


def test_an_address_beyond_loopback_needs_insecure(tmp_path: Path) -> None:
    done = subprocess.run(
        [*COMMAND, "--listen", "0.0.0.0:0", "--data", str(tmp_path), "--end-with-stdin"],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE_S,
    )  # fmt: skip
    assert done.returncode == ExitCode.USAGE
    assert "--listen: 0.0.0.0 can be reached from other machines" in done.stderr
    assert "--insecure" in done.stderr


def test_json_prints_the_address_of_the_page_as_json(tmp_path: Path) -> None:
    options = ["--listen", "127.0.0.1:0", "--data", str(tmp_path), "--json", "--end-with-stdin"]
    with subprocess.Popen(
        [*COMMAND, *options, "-g", "127.0.0.1:7777"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            facts = json.loads(process.stdout.readline())
            assert facts["gateways"] == "ws://127.0.0.1:7777/"
            assert facts["pid"] == str(process.pid)
            with urlopen(f"http://{facts['http']}/", timeout=PATIENCE_S) as page:
                assert page.status == 200
            process.stdin.close()
            assert process.wait(PATIENCE_S) == ExitCode.OK
        finally:
            process.kill()
