"""examples/election, run as its README describes, against the server under test; and its app servers
on three brokers, two of which stop."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from tests.conformance_zookeeper.brokers import Brokers
from tests.conformance_zookeeper.conftest import IS_BROKER
from tests.conformance_zookeeper.opened import opened
from tests.waiting import eventually

WITHIN_S = 60.0
NODE = "/clusterx/master"
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
    # The output of the servers is indented, and may still arrive after the end of the story.
    story = [line for line in outcome.stdout.splitlines() if not line.startswith("  ")]
    last = story[-1].split()
    assert last[1] == "follows"
    assert client.get(node)[0].decode() == last[2]


@pytest.fixture
def members(brokers: Brokers) -> Iterator[list[Any]]:
    """The demo's own three app servers, each a process."""
    spec = importlib.util.spec_from_file_location("election_demo", DEMO)
    assert spec is not None
    assert spec.loader is not None
    demo = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(demo)
    started: list[Any] = []
    try:
        for name in ("app-1", "app-2", "app-3"):
            started.append(demo.Member(name, ["--server", brokers.addresses, "--path", NODE]))
        yield started
    finally:
        for member in started:
            member.kill()


def followed(members: list[Any]) -> str | None:
    """The master's name, while there is exactly one and all others follow it."""
    masters = [member.name for member in members if member.role == "master"]
    known = {member.last.get("master") for member in members}
    return masters[0] if len(masters) == 1 and known == set(masters) else None


@pytest.mark.skipif(not IS_BROKER, reason="about brokers of ours; run without ZOOKEEPER")
def test_without_a_quorum_there_is_no_master_and_later_one_again(
    brokers: Brokers, members: list[Any]
) -> None:
    eventually(lambda: followed(members), WITHIN_S)
    leader = brokers.leader()
    for node in (leader, (leader + 1) % 3):
        brokers.pause(node)
    eventually(lambda: {member.role for member in members} == {"nobody"}, WITHIN_S)
    # Longer than the session timeout: another master would have been elected if that were possible.
    assert not threading.Event().wait(5.0)
    assert {member.role for member in members} == {"nobody"}
    for node in brokers.target.nodes:
        brokers.resume(node)
    # kazoo increases the time between attempts to connect.
    eventually(lambda: followed(members), 2 * WITHIN_S)
    with opened(brokers.addresses, WITHIN_S) as client:
        eventually(lambda: client.get(NODE)[0].decode() == followed(members), WITHIN_S)
