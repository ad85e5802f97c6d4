"""Atomic replacement: after a crash either the old or the new state is there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kafkaesque.broker.storage import durable_state


def test_state_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = str(tmp_path / "state")
    assert durable_state.load(path) is None
    for content in (b"", b"one", b"two" * 1000):
        durable_state.save(path, content)
        assert durable_state.load(path) == content
    assert os.listdir(tmp_path) == ["state"]


def test_failed_save_leaves_the_old_state(tmp_path: Path) -> None:
    path = str(tmp_path / "state")
    durable_state.save(path, b"old")
    os.mkdir(path + durable_state.TEMPORARY_SUFFIX)
    with pytest.raises(OSError, match="directory"):
        durable_state.save(path, b"new")
    assert durable_state.load(path) == b"old"


def test_any_flipped_bit_and_any_cut_is_detected(tmp_path: Path) -> None:
    path = tmp_path / "state"
    durable_state.save(str(path), b"content")
    sound = path.read_bytes()
    for position in range(len(sound)):
        flipped = bytearray(sound)
        flipped[position] ^= 0x10
        for damaged in (bytes(flipped), sound[:position]):
            path.write_bytes(damaged)
            with pytest.raises(durable_state.StateDamaged):
                durable_state.load(str(path))
    path.write_bytes(sound + b"x")
    with pytest.raises(durable_state.StateDamaged):
        durable_state.load(str(path))
