"""A bounded set of open file descriptors, shared by all logs of a node.

A log with a thousand segments, or a node with five thousand logs, has far more files than a process
may hold open. Whoever wants to use a file acquires it, which opens it if needed, and releases it;
files not in use are closed, least recently used first. Safe to use from any thread.

Linux keeps a write-back error with the inode and reports it to the next fsync even through a
descriptor opened later (errseq_t, 4.16+), so closing a file with unsynced data does not lose it.
"""

from __future__ import annotations

import os
import resource
import shutil
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from random import random
from typing import Final, NamedTuple, TypeAlias

from kafkaesque.model.errors import check

FILES_MIN: Final = 16
FILES_MAX: Final = 4096
_RETIRED_SUFFIX: Final = "#retired"
_LOAD_BYTES: Final = 1024 * 1024
_ONLY_FROM_MEMORY: Final[int] = getattr(os, "RWF_NOWAIT", 0)
_ONE_BYTE: Final = (bytearray(1),)
"""Nobody looks at what is read into it."""
_SHARE_OF_LIMIT: Final = 4
"""A quarter of the descriptors for logs; most of the rest is for connections."""


class FileStat(NamedTuple):
    size_bytes: int
    modified_ms: int
    """Wall clock."""


class SystemCalls:
    """What is asked of the operating system, in one place so that a test can make it fail and a
    simulation can put a disk of its own behind it."""

    def open(self, path: str, *, create: bool) -> int:
        return os.open(path, os.O_RDWR | (os.O_CREAT if create else 0), 0o644)

    def close(self, fd: int) -> None:
        os.close(fd)

    pread = staticmethod(os.pread)
    pwrite = staticmethod(os.pwrite)
    """Without a frame of Python around them: every batch goes this way."""

    def is_in_memory(self, fd: int, position: int) -> bool:
        """Whether a read there would not wait for the disk. Where nobody can tell, it is hoped so."""
        if not _ONLY_FROM_MEMORY:  # not this system: the look would be what waits
            return True
        try:
            os.preadv(fd, _ONE_BYTE, position, _ONLY_FROM_MEMORY)
        except BlockingIOError:
            return False
        except OSError:  # not this file system (tmpfs), or what the read itself will raise
            return True
        return True

    def ftruncate(self, fd: int, size_bytes: int) -> None:
        os.ftruncate(fd, size_bytes)

    def fdatasync(self, fd: int) -> None:
        os.fdatasync(fd)

    def sync_directory(self, path: str) -> None:
        """Make the names in a directory durable."""
        fd = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def stat(self, path: str) -> FileStat:
        found = os.stat(path)
        return FileStat(found.st_size, found.st_mtime_ns // 1_000_000)

    def exists(self, path: str) -> bool:
        """Whether there is a file or a directory."""
        return os.path.exists(path)

    def list_names(self, path: str) -> list[str]:
        """The names in a directory, in no order."""
        return os.listdir(path)

    def make_directories(self, path: str) -> None:
        os.makedirs(path)

    def rename(self, path: str, new_path: str) -> None:
        """Atomically, in place of what had the new name; durable once the directory is synced."""
        os.rename(path, new_path)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def remove_tree(self, path: str) -> None:
        """As far as that is possible."""
        shutil.rmtree(path, ignore_errors=True)


REAL_CALLS: Final = SystemCalls()


class OpenFile:
    """A file that may or may not be open now. Only OpenFiles touches what is behind the path."""

    __slots__ = ("fd", "is_leaving", "path", "users")

    def __init__(self, path: str) -> None:
        self.path = path
        self.fd = -1
        self.users = 0
        self.is_leaving = False


Place: TypeAlias = tuple[OpenFile, int]
"""A file and a position in it."""


class FileRange(NamedTuple):
    """Bytes of a file, whoever has it open."""

    file: OpenFile
    position: int
    size_bytes: int

    @property
    def start(self) -> Place:
        return self.file, self.position

    def load(self) -> None:
        """Have the page cache hold them. By its name and a descriptor of its own: what they mean, and
        what becomes of the file meanwhile, is no affair of the thread that waits for the disk."""
        with suppress(OSError), open(self.file.path, "rb", buffering=0) as file:
            file.seek(self.position)
            left_bytes = self.size_bytes
            while left_bytes > 0 and (data := file.read(min(left_bytes, _LOAD_BYTES))):
                left_bytes -= len(data)


class OpenFiles:
    """At most `files_max` descriptors, except while more than that many are in use at once."""

    __slots__ = ("_lock", "_open", "_pinned_count", "calls", "files_max")

    def __init__(self, files_max: int | None = None, calls: SystemCalls | None = None) -> None:
        self.files_max = default_files_max() if files_max is None else files_max
        check(self.files_max >= 1, "a node needs at least one open file")
        self.calls = calls or REAL_CALLS
        self._open: OrderedDict[OpenFile, None] = OrderedDict()
        self._pinned_count = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Descriptors held now."""
        return len(self._open)

    def acquire(self, file: OpenFile, *, create: bool = False) -> int:
        """A descriptor that stays valid until `release`. Raises OSError."""
        with self._lock:
            if file.fd < 0:
                self._open_now(file, create=create)
            else:
                self._open.move_to_end(file)
            file.users += 1
            return file.fd

    def release(self, file: OpenFile) -> None:
        with self._lock:
            file.users -= 1
            if file.is_leaving and file.users == 0:
                self._close(file)

    def pin(self, file: OpenFile) -> int:
        """A descriptor that stays valid until `unpin`; -1 if enough files are pinned already.

        For a file that is written again and again: acquire and release cost more than the rest of
        a small append. Only half of the descriptors can be pinned, so that the bound holds.
        """
        if self._pinned_count >= self.files_max // 2:
            return -1
        fd = self.acquire(file, create=True)
        with self._lock:
            self._pinned_count += 1
        return fd

    def unpin(self, file: OpenFile) -> None:
        with self._lock:
            self._pinned_count -= 1
        self.release(file)

    def pread(self, file: OpenFile, size_bytes: int, position: int) -> bytes:
        """Up to `size_bytes` from `position`; fewer only at the end of the file."""
        # `acquire` and `release` written out: every fetch comes this way.
        with self._lock:
            if (fd := file.fd) < 0:
                fd = self._open_now(file, create=False)
            else:
                self._open.move_to_end(file)
            file.users += 1
        try:
            data = self.calls.pread(fd, size_bytes, position)
            while len(data) < size_bytes:
                more = self.calls.pread(fd, size_bytes - len(data), position + len(data))
                if not more:
                    break
                data += more
            return data
        finally:
            with self._lock:
                file.users -= 1
                if file.is_leaving and file.users == 0:
                    self._close(file)

    def is_in_memory(self, wanted: FileRange) -> bool:
        """Whether `pread` of this would not wait for the disk, as far as two looks tell.

        One at the end, where the kernel's reading ahead has not been, one at random: a look has the
        kernel load the few pages around it, and whoever looks at the same place next sees those.
        """
        file, position, size_bytes = wanted
        fd, is_in_memory, last = self.acquire(file), self.calls.is_in_memory, max(size_bytes - 1, 0)
        try:
            between = position + int(random() * last)  # noqa: S311 - no secret
            return is_in_memory(fd, position + last) and is_in_memory(fd, between)
        finally:
            self.release(file)

    def pwrite(self, file: OpenFile, data: bytes | bytearray | memoryview, position: int) -> None:
        """All of `data` at `position`, creating the file if needed."""
        fd = self.acquire(file, create=True)
        try:
            written = self.calls.pwrite(fd, data, position)
            if written != len(data):
                rest = memoryview(data)[written:]
                position += written
                while rest:
                    written = self.calls.pwrite(fd, rest, position)
                    rest = rest[written:]
                    position += written
        finally:
            self.release(file)

    def truncate(self, file: OpenFile, size_bytes: int) -> None:
        fd = self.acquire(file, create=True)
        try:
            self.calls.ftruncate(fd, size_bytes)
        finally:
            self.release(file)

    def sync(self, file: OpenFile) -> None:
        fd = self.acquire(file)
        try:
            self.calls.fdatasync(fd)
        finally:
            self.release(file)

    def size_bytes(self, file: OpenFile) -> int:
        """The file's size; 0 if there is none."""
        try:
            return self.calls.stat(file.path).size_bytes
        except FileNotFoundError:
            return 0

    def modified_ms(self, file: OpenFile) -> int:
        """When the file was last written, in wall-clock milliseconds; 0 if there is none."""
        try:
            return self.calls.stat(file.path).modified_ms
        except FileNotFoundError:
            return 0

    def forget(self, file: OpenFile) -> None:
        """Close the file, now or, if another thread is using it, as soon as it is released."""
        with self._lock:
            if file.fd < 0:
                return
            if file.users == 0:
                self._close(file)
            else:
                file.is_leaving = True

    def retire(self, file: OpenFile) -> None:
        """The name will soon be another file's: who uses this one may finish, nobody opens it again
        (FileNotFoundError)."""
        with self._lock:
            file.path += _RETIRED_SUFFIX
        self.forget(file)

    @contextmanager
    def held(self, files: Iterable[OpenFile]) -> Iterator[None]:
        """Keep files open: deleting a large one then costs nothing until this ends."""
        acquired = []
        try:
            for file in files:
                self.acquire(file)
                acquired.append(file)
            yield
        finally:
            for file in acquired:
                self.release(file)

    def close(self) -> None:
        """Close every file."""
        with self._lock:
            for file in list(self._open):
                self._close(file)

    def _open_now(self, file: OpenFile, *, create: bool) -> int:
        self._make_room()
        file.fd = self.calls.open(file.path, create=create)
        self._open[file] = None
        return file.fd

    def _make_room(self) -> None:
        if len(self._open) < self.files_max:
            return
        for file in self._open:
            if file.users == 0:
                self._close(file)
                return

    def _close(self, file: OpenFile) -> None:
        del self._open[file]
        file.is_leaving = False
        fd, file.fd = file.fd, -1
        self.calls.close(fd)


def default_files_max() -> int:
    """A share of what this process may open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return FILES_MAX
    return max(FILES_MIN, min(FILES_MAX, soft // _SHARE_OF_LIMIT))
