from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kafkaesque.pipeline.errors import CheckpointInUse, CheckpointLost
from kafkaesque.pipeline.source.checkpoint import (
    CheckpointLock,
    checkpoint_id,
    committed_watermark_ms,
    pin_initial_offsets,
)


def test_initial_offsets_are_resolved_once(tmp_path: Path) -> None:
    assert pin_initial_offsets(tmp_path, lambda: {("t", 0): 5}) == {("t", 0): 5}
    assert pin_initial_offsets(tmp_path, lambda: {("t", 0): 9}) == {("t", 0): 5}


def test_checkpoint_with_batches_but_without_initial_offsets_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_text("v1")
    with pytest.raises(CheckpointLost, match="no initial offsets"):
        pin_initial_offsets(tmp_path, lambda: {("t", 0): 5})


def test_checkpoint_id_is_stable_and_unique(tmp_path: Path) -> None:
    first = checkpoint_id(tmp_path / "a")
    assert checkpoint_id(tmp_path / "a") == first
    assert checkpoint_id(tmp_path / "b") != first


def test_second_query_on_a_checkpoint_is_rejected_with_the_holders_pid(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys; from pathlib import Path;"
            "from kafkaesque.pipeline.source.checkpoint import CheckpointLock;"
            f"lock = CheckpointLock.acquire(Path({str(tmp_path)!r})); print('held', flush=True);"
            "sys.stdin.read()",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(CheckpointInUse, match=f"pid {holder.pid}"):
            CheckpointLock.acquire(tmp_path)
    finally:
        holder.kill()
        holder.communicate()
    CheckpointLock.acquire(tmp_path).release()


def write_checkpoint(path: Path, watermarks_ms: list[int], commits: int) -> Path:
    for name in ("offsets", "commits"):
        (path / name).mkdir(parents=True)
    for number, watermark in enumerate(watermarks_ms):
        text = f'v1\n{json.dumps({"batchWatermarkMs": watermark})}\n{{"t":{{"0":1}}}}'
        (path / "offsets" / str(number)).write_text(text)
    for number in range(commits):
        (path / "commits" / str(number)).write_text("v1\n{}")
    return path


def test_committed_watermark_is_that_of_the_last_committed_batch(
    tmp_path: Path,
) -> None:
    assert committed_watermark_ms(tmp_path / "never") is None
    assert committed_watermark_ms(write_checkpoint(tmp_path / "begun", [0], 0)) == 0
    assert committed_watermark_ms(write_checkpoint(tmp_path / "ran", [0, 40, 70], 2)) == 40
