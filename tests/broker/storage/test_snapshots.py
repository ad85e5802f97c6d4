"""Snapshots next to the segments."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkaesque.broker.storage.snapshots import (
    delete_snapshots,
    latest_snapshot,
    list_snapshots,
    save_snapshot,
)
from kafkaesque.model.errors import StorageFailed


def test_latest_snapshot_at_or_before_an_offset_is_found(tmp_path: Path) -> None:
    directory = str(tmp_path)
    for offset in (10, 300, 20):
        save_snapshot(directory, offset, b"%d" % offset)
    assert list_snapshots(directory) == [10, 20, 300]
    assert latest_snapshot(directory, 9) is None
    assert latest_snapshot(directory, 20) == (20, b"20")
    assert latest_snapshot(directory, 299) == (20, b"20")
    assert latest_snapshot(directory, 1000) == (300, b"300")


def test_damaged_snapshot_counts_as_absent(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = str(tmp_path)
    save_snapshot(directory, 10, b"old")
    save_snapshot(directory, 20, b"new")
    path = tmp_path / f"{20:020d}.snapshot"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    assert latest_snapshot(directory, 99) == (10, b"old")
    assert "ignoring a snapshot" in caplog.text


@pytest.mark.parametrize(
    ("before", "after", "keep", "left"),
    [
        (0, 99, None, [10, 20, 30]),
        (11, 99, None, [20, 30]),
        (0, 29, None, [10, 20]),
        (0, 99, 2, [20, 30]),
        (0, 20, 1, [20]),
        (0, 99, 0, []),
        (0, 99, 9, [10, 20, 30]),
    ],
)
def test_snapshots_outside_the_log_and_all_but_the_last_are_deleted(
    tmp_path: Path, before: int, after: int, keep: int | None, left: list[int]
) -> None:
    directory = str(tmp_path)
    (tmp_path / "notes.snapshot").write_text("not ours")
    for offset in (10, 20, 30):
        save_snapshot(directory, offset, b"")
    delete_snapshots(directory, before=before, after=after, keep=keep)
    assert list_snapshots(directory) == left
    assert (tmp_path / "notes.snapshot").exists()


def test_disk_that_rejects_a_snapshot_is_a_storage_failure(tmp_path: Path) -> None:
    with pytest.raises(StorageFailed):
        save_snapshot(str(tmp_path / "gone"), 1, b"")
