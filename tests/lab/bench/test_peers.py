"""Command lines of the servers under test."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkaesque.lab.bench.peers import (
    Floor,
    Ours,
    PeerFailed,
    PeerOptions,
    ScriptPeer,
    make_peer,
    peer_label,
)


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


def test_path_is_a_peer_of_another_version(tmp_path: Path) -> None:
    (tmp_path / "before" / "src" / "kafkaesque").mkdir(parents=True)
    peer = make_peer(f"{tmp_path}/before", PeerOptions(tmp_path))
    assert isinstance(peer, ScriptPeer)
    assert (peer.name, peer.data) == ("before", tmp_path / "before")
    assert peer.environment()["PYTHONPATH"] == f"{tmp_path}/before/src"


def test_path_without_sources_is_refused(tmp_path: Path) -> None:
    peer = make_peer(f"{tmp_path}/nothing", PeerOptions(tmp_path))
    assert isinstance(peer, ScriptPeer)
    with pytest.raises(PeerFailed, match="no src/kafkaesque"):
        peer.environment()


def test_label_of_a_checkout_is_no_path(tmp_path: Path) -> None:
    """Directories are made, and removed, by it."""
    assert [peer_label(name) for name in ("ours", f"{tmp_path}/before/", "../x/../y")] == [
        "ours", "before", "y",
    ]  # fmt: skip
