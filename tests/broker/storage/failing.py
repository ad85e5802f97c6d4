"""Disks that are full or broken, for real where possible."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kafkaesque.broker.storage.open_files import SystemCalls


@contextmanager
def small_disk(directory: Path) -> Iterator[Path]:
    """A file system of 256 KiB, mounted for the time of a test."""
    mount = directory / "small"
    mount.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(mount)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(
            f"no tmpfs may be mounted: run as root with CAP_SYS_ADMIN ({mounted.stderr.strip()})"
        )
    try:
        yield mount
    finally:
        subprocess.run(["umount", "-l", str(mount)], check=True)


class FailingCalls(SystemCalls):
    """The real system calls, with injected failures."""

    def __init__(self) -> None:
        self.failing: set[str] = set()

    def _maybe_fail(self, name: str) -> None:
        if name in self.failing:
            raise OSError(5, f"Input/output error ({name})")

    def open(self, path: str, *, create: bool) -> int:
        self._maybe_fail("open")
        return super().open(path, create=create)

    def pwrite(self, fd: int, data: bytes | bytearray | memoryview, position: int) -> int:
        if "pwrite" in self.failing:
            super().pwrite(fd, memoryview(data)[: len(data) // 2], position)
        self._maybe_fail("pwrite")
        return super().pwrite(fd, data, position)

    def ftruncate(self, fd: int, size_bytes: int) -> None:
        self._maybe_fail("ftruncate")
        super().ftruncate(fd, size_bytes)

    def fdatasync(self, fd: int) -> None:
        self._maybe_fail("fdatasync")
        super().fdatasync(fd)

    def sync_directory(self, path: str) -> None:
        self._maybe_fail("sync_directory")
        super().sync_directory(path)

    def rename(self, path: str, new_path: str) -> None:
        self._maybe_fail("rename")
        super().rename(path, new_path)
