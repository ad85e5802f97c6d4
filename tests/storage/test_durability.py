"""Disks that fail to make things durable."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkaesque.model.errors import (
    StorageFailed,
)
from kafkaesque.model.ids import Offset
from kafkaesque.storage.config import LogConfig
from kafkaesque.storage.log import Log
from kafkaesque.storage.open_files import OpenFiles

from .batches import append, offsets, open_log
from .failing import FailingCalls


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
