"""examples/election, run as its README says, against whatever server is under test."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from kazoo.client import KazooClient

DEMO = Path(__file__).resolve().parents[2] / "examples" / "election" / "demo.py"


def test_killed_master_is_followed_by_another_and_returns_as_follower(
    address: str, client: KazooClient, path: str
) -> None:
    node = path + "/clusterx/master"
    outcome = subprocess.run(
        [sys.executable, str(DEMO), "--server", address, "--path", node, "--session-timeout", "1"],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    # What the servers say is indented, and may still come after the story has ended.
    story = [line for line in outcome.stdout.splitlines() if not line.startswith("  ")]
    last = story[-1].split()
    assert last[1] == "follows"
    assert client.get(node)[0].decode() == last[2]
