"""Functions that replication uses: reset, retention plans, reads at positions, repair in place."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.broker.storage.batches import SMALL, append, offsets, open_log, read_all
from tests.broker.storage.failing import FailingCalls

from kafkaesque.broker.storage.config import LogConfig
from kafkaesque.broker.storage.log import Log
from kafkaesque.broker.storage.open_files import OpenFiles
from kafkaesque.model.errors import CorruptMessage, OffsetOutOfRange, StorageFailed
from kafkaesque.model.ids import Offset


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("offset", [2, 500])
@pytest.mark.parametrize("batches", [0, 1, 40])
def test_reset_log_is_empty_and_continues_at_the_offset(
    tmp_path: Path, batches: int, offset: int, clean: bool
) -> None:
    log = open_log(tmp_path)
    for _ in range(batches):
        append(log, 2, epoch=3)
    log.reset_to(Offset(offset))
    assert (log.log_start_offset, log.synced_offset, log.log_end_offset) == (offset,) * 3
    assert (log.size_bytes, log.epoch_at(Offset(offset))) == (0, -1)
    append(log, 3, epoch=5)
    log.sync()
    log.close(clean=clean)
    log = open_log(tmp_path, clean=clean)
    assert (log.log_start_offset, log.log_end_offset) == (offset, offset + 3)
    assert [header.base_offset for header in read_all(log)] == [offset]
    assert len([name for name in os.listdir(tmp_path) if name.endswith(".log")]) == 1


def test_reset_of_an_empty_log_leaves_its_files_alone_until_it_has_a_batch(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.reset_to(Offset(70))
    assert not log.needs_sync
    log.sync()
    log.close(clean=False)
    assert open_log(tmp_path).log_end_offset == 0


def test_planned_retention_deletes_nothing_and_closes_a_segment_that_is_expired(
    tmp_path: Path,
) -> None:
    config = LogConfig(segment_bytes=1000, retention_ms=10)
    log = open_log(tmp_path, config)
    for _ in range(30):
        append(log, 1)
    bases = [segment.base_offset for segment in log.segments]
    assert log.plan_retention(10**12, Offset(bases[1])) == bases[1]
    assert log.plan_retention(0, Offset(30)) == 0
    assert [segment.base_offset for segment in log.segments] == bases
    assert log.plan_retention(10**12, Offset(30)) == 30
    assert log.active_base_offset == 30
    assert len(read_all(log)) == 30
    log.delete_before(Offset(30))
    assert log.size_bytes == 0


def test_segment_is_found_by_its_first_offset_only(tmp_path: Path) -> None:
    log = open_log(tmp_path, SMALL)
    for _ in range(30):
        append(log, 1)
    base = log.segments[1].base_offset
    assert log.segment(base).base_offset == base
    with pytest.raises(OffsetOutOfRange):
        log.segment(Offset(base + 1))


def test_rewritten_batch_is_read_again(tmp_path: Path) -> None:
    log = open_log(tmp_path, LogConfig(retention_ms=-1))
    first = append(log, 2)
    second = append(log, 2)
    log.sync()
    path = tmp_path / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[len(first) + 70] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptMessage):
        log.read(Offset(2), 9999, limit_offset=Offset(4))
    log.rewrite_at(Offset(0), len(first), second)
    assert offsets(log.read(Offset(2), 9999, limit_offset=Offset(4))) == [2, 3]


def test_failed_sync_of_a_rewritten_batch_is_final(tmp_path: Path) -> None:
    calls = FailingCalls()
    log = Log.open(tmp_path, SMALL, OpenFiles(8, calls), clean=False)
    batch = append(log, 2)
    log.sync()
    calls.failing.add("fdatasync")
    with pytest.raises(StorageFailed, match="fsync"):
        log.rewrite_at(Offset(0), 0, batch)
    calls.failing.clear()
    with pytest.raises(StorageFailed):
        append(log, 1)
