"""Disks that fail to make things durable."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.broker.storage.batches import append, offsets, open_log
from tests.broker.storage.failing import FailingCalls

from kafkaesque.broker.storage.config import LogConfig
from kafkaesque.broker.storage.log import Log
from kafkaesque.broker.storage.open_files import OpenFiles, SystemCalls
from kafkaesque.model.errors import (
    StorageFailed,
)
from kafkaesque.model.ids import Offset


@pytest.mark.parametrize("call", ["fdatasync", "sync_directory"])
def test_failed_fsync_is_final_and_readers_get_what_was_synced_before(
    tmp_path: Path, call: str
) -> None:
    calls = FailingCalls()
    log = Log.open(tmp_path, LogConfig(segment_bytes=100), OpenFiles(8, calls), clean=False)
    append(log)
    assert log.sync() == 1
    append(log)
    calls.failing = {call}
    with pytest.raises(StorageFailed):
        log.sync()
    calls.failing = set()
    assert log.failure is not None
    for attempt in (log.sync, lambda: append(log), lambda: log.delete_before(Offset(1))):
        with pytest.raises(StorageFailed):
            attempt()
    assert log.synced_offset == 1
    assert offsets(log.read(Offset(0), 10_000, limit_offset=Offset(2))) == [0]
    assert log.read(Offset(1), 10_000, limit_offset=Offset(2)).records == b""
    log.close()


def test_small_files_that_cannot_be_written_only_make_recovery_read_more(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for epoch in range(3):
        append(log, 1, epoch=epoch)
    blocker = tmp_path / "structure.tmp"
    blocker.mkdir()
    assert log.sync() == 3
    assert log.needs_sync
    with pytest.raises(StorageFailed):
        log.delete_before(Offset(1))
    blocker.rmdir()
    log.sync()
    assert not log.needs_sync
    log.close(clean=False)
    log = open_log(tmp_path)
    assert (log.synced_offset, log.log_start_offset, len(log.segments)) == (3, 1, 1)


def test_file_that_cannot_be_opened_for_now_is_synced_later(tmp_path: Path) -> None:
    calls = FailingCalls()
    files = OpenFiles(8, calls)
    log = Log.open(tmp_path, LogConfig(), files, clean=False)
    append(log)
    files.close()
    calls.failing = {"open"}
    with pytest.raises(StorageFailed):
        log.sync()
    assert (log.failure, log.synced_offset, log.needs_sync) == (None, 0, True)
    calls.failing = set()
    assert log.sync() == 1
    assert not log.needs_sync


class DirectoryWitness(SystemCalls):
    """Remembers which directories were made durable."""

    def __init__(self) -> None:
        self.synced: list[str] = []

    def sync_directory(self, path: str) -> None:
        super().sync_directory(path)
        self.synced.append(path)


@pytest.mark.parametrize("reopened", [False, True])
def test_names_of_a_new_log_are_durable_up_to_the_directory_of_topics(
    tmp_path: Path, reopened: bool
) -> None:
    calls = DirectoryWitness()
    path = tmp_path / "topics" / "id" / "0"
    config = LogConfig(segment_bytes=1)
    log = Log.open(path, config, OpenFiles(8, calls), clean=False)
    append(log)
    if reopened:
        log.close(clean=False)
        log = Log.open(path, config, OpenFiles(8, calls), clean=False)
        append(log)
    log.sync()
    assert calls.synced[:3] == [str(path), str(path.parent), str(path.parent.parent)]
    calls.synced.clear()
    append(log)
    log.sync()
    assert set(calls.synced) == {str(path)}
    calls.synced.clear()
    log.sync()
    assert calls.synced == []
