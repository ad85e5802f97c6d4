"""The bounded set of descriptors."""

from __future__ import annotations

import os
import resource
import threading
from pathlib import Path

import pytest

from kafkaesque.broker.storage.open_files import FILES_MAX, OpenFile, OpenFiles, SystemCalls
from kafkaesque.broker.storage.open_files import default_files_max as default


def _files(directory: Path, count: int) -> list[OpenFile]:
    return [OpenFile(str(directory / str(i))) for i in range(count)]


def test_least_recently_used_file_is_closed_and_opened_again(tmp_path: Path) -> None:
    files = OpenFiles(2)
    a, b, c = _files(tmp_path, 3)
    files.pwrite(a, b"a", 0)
    files.pwrite(b, b"b", 0)
    assert files.pread(a, 10, 0) == b"a"
    files.pwrite(c, b"c", 0)
    assert [file.fd >= 0 for file in (a, b, c)] == [True, False, True]
    assert files.pread(b, 10, 0) == b"b"
    assert len(files) == 2


def test_file_in_use_is_not_closed_even_beyond_the_bound(tmp_path: Path) -> None:
    files = OpenFiles(1)
    a, b, c = _files(tmp_path, 3)
    fd = files.acquire(a, create=True)
    files.pwrite(b, b"b", 0)
    os.fstat(fd)
    assert len(files) == 2
    files.release(a)
    files.pwrite(c, b"c", 0)
    assert len(files) == 2
    files.close()
    assert len(files) == 0


def test_forgotten_file_in_use_is_closed_when_released(tmp_path: Path) -> None:
    files = OpenFiles(2)
    (a,) = _files(tmp_path, 1)
    fd = files.acquire(a, create=True)
    files.forget(a)
    os.fstat(fd)
    files.release(a)
    assert (a.fd, len(files)) == (-1, 0)
    files.forget(a)


class StutteringCalls(SystemCalls):
    """Reads and writes three bytes at a time, as the kernel may."""

    def pread(self, fd: int, size_bytes: int, position: int) -> bytes:
        return super().pread(fd, min(3, size_bytes), position)

    def pwrite(self, fd: int, data: bytes | bytearray | memoryview, position: int) -> int:
        return super().pwrite(fd, memoryview(data)[:3], position)


def test_short_reads_and_writes_are_completed(tmp_path: Path) -> None:
    files = OpenFiles(2, StutteringCalls())
    (a,) = _files(tmp_path, 1)
    files.pwrite(a, b"0123456789", 5)
    assert files.pread(a, 10, 5) == b"0123456789"
    assert files.pread(a, 100, 12) == b"789"
    assert files.size_bytes(a) == 15


def test_file_that_is_not_there_has_no_size_and_cannot_be_read(tmp_path: Path) -> None:
    files = OpenFiles(2)
    (a,) = _files(tmp_path, 1)
    assert (files.size_bytes(a), files.modified_ms(a)) == (0, 0)
    with pytest.raises(FileNotFoundError):
        files.pread(a, 1, 0)
    assert len(files) == 0


def test_threads_share_few_descriptors_without_mixing_files_up(tmp_path: Path) -> None:
    files = OpenFiles(2)
    handles = _files(tmp_path, 8)
    for handle in handles:
        files.pwrite(handle, handle.path.encode(), 0)
    wrong: list[str] = []

    def read_many() -> None:
        for _ in range(300):
            for handle in handles:
                if files.pread(handle, 1000, 0) != handle.path.encode():
                    wrong.append(handle.path)

    threads = [threading.Thread(target=read_many) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_default_bound_is_a_share_of_what_the_process_may_open() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(1000, hard), hard))
        assert default() == min(1000, hard) // 4
        assert OpenFiles().files_max == default()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert 16 <= default() <= FILES_MAX


def test_pinned_file_stays_open_until_it_is_unpinned(tmp_path: Path) -> None:
    files = OpenFiles(2)
    a, b, c = _files(tmp_path, 3)
    fd = files.pin(a)
    for file in (b, c):
        files.pwrite(file, b"x", 0)
    os.fstat(fd)
    assert (a.fd, len(files)) == (fd, 2)
    files.unpin(a)
    files.pwrite(b, b"x", 0)
    assert a.fd == -1


def test_only_half_of_the_descriptors_can_be_pinned(tmp_path: Path) -> None:
    files = OpenFiles(4)
    wanted = _files(tmp_path, 3)
    assert [files.pin(file) >= 0 for file in wanted] == [True, True, False]
    files.unpin(wanted[0])
    assert files.pin(wanted[2]) >= 0
    files.close()


def test_pinned_file_that_is_forgotten_is_closed_when_unpinned(tmp_path: Path) -> None:
    files = OpenFiles(2)
    (a,) = _files(tmp_path, 1)
    files.pin(a)
    files.forget(a)
    assert a.fd >= 0
    files.unpin(a)
    assert (a.fd, len(files)) == (-1, 0)
