from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kafkaesque.pipeline.errors import CheckpointInUse, CheckpointLost
from kafkaesque.pipeline.source.durable_start import CheckpointLock, durable_offsets, identity


def test_first_offsets_are_asked_for_once_and_for_ever(tmp_path: Path) -> None:
    assert durable_offsets(tmp_path, lambda: {("t", 0): 5}) == {("t", 0): 5}
    assert durable_offsets(tmp_path, lambda: {("t", 0): 9}) == {("t", 0): 5}


def test_checkpoint_with_batches_but_without_its_beginning_is_refused(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_text("v1")
    with pytest.raises(CheckpointLost, match="where they began"):
        durable_offsets(tmp_path, lambda: {("t", 0): 5})


def test_checkpoint_keeps_its_identity_and_another_has_another(tmp_path: Path) -> None:
    first = identity(tmp_path / "a")
    assert identity(tmp_path / "a") == first
    assert identity(tmp_path / "b") != first


def test_second_query_on_a_checkpoint_is_refused_and_told_who_runs(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys; from pathlib import Path;"
            "from kafkaesque.pipeline.source.durable_start import CheckpointLock;"
            f"lock = CheckpointLock.take(Path({str(tmp_path)!r})); print('held', flush=True);"
            "sys.stdin.read()",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(CheckpointInUse, match=f"pid {holder.pid}"):
            CheckpointLock.take(tmp_path)
    finally:
        holder.kill()
        holder.communicate()
    CheckpointLock.take(tmp_path).release()
