"""Idle consumer groups: when they are settled, and that they settle on a broker."""

from __future__ import annotations

import io
import json
import sys

import pytest

from kafkaesque.client.wire.address import parse_broker_address
from kafkaesque.lab.bench.idle_clients import IdleGroup, group_members
from kafkaesque.testing import Broker


@pytest.mark.parametrize(
    ("synced", "settled"),
    [
        ({}, False),
        ({"a": 1}, False),
        ({"a": 1, "b": 2}, False),
        ({"a": 2, "b": 2}, True),
    ],
)
def test_group_is_settled_when_all_members_share_a_generation(
    synced: dict[str, int], settled: bool
) -> None:
    assert IdleGroup("g", 2, synced).is_settled is settled


def test_members_settle_on_a_broker_and_hold_until_standard_input_ends(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    with Broker() as broker:
        host, port = parse_broker_address(broker.bootstrap_servers)
        spec = {"host": host, "port": port, "prefix": "idle", "count": 6, "groups": 2}
        figures = group_members(spec)
    assert figures["settled_groups"] == 2
    assert json.loads(capsys.readouterr().out)["elapsed_s"] > 0
