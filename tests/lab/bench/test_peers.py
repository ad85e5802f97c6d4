"""Command lines of the servers under test."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkaesque.lab.bench.peers import Floor, Ours, PeerOptions


@pytest.mark.parametrize(("durable", "flags"), [(False, ["--set", "flush=never"]), (True, [])])
def test_ours_syncs_only_where_durability_is_measured(
    tmp_path: Path, durable: bool, flags: list[str]
) -> None:
    command = Ours(PeerOptions(tmp_path, durable=durable)).command()
    assert command[command.index("broker") + 7 :] == flags


def test_floor_gets_its_loop_and_sync(tmp_path: Path) -> None:
    command = Floor(PeerOptions(tmp_path, durable=True, loop="asyncio")).command()
    assert command[-1] == "--sync"
    assert command[command.index("--loop") + 1] == "asyncio"
