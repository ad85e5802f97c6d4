"""A bounded set of open file descriptors, shared by all logs of a node.

A log with a thousand segments, or a node with five thousand logs, has far more files than a process
may hold open. `acquire` opens a file if needed and `release` gives it back; files not in use are
closed, least recently used first. Thread-safe.

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
"""Target of probing reads; its content is never used."""
_SHARE_OF_LIMIT: Final = 4
"""A quarter of the descriptors for logs; most of the rest is for connections."""


class FileStat(NamedTuple):
    size_bytes: int
    modified_ms: int
    """Wall clock."""


class SystemCalls:
    """All calls to the operating system, so that tests can inject failures and the simulator can
    substitute its own disk."""

    def open(self, path: str, *, create: bool) -> int:
        return os.open(path, os.O_RDWR | (os.O_CREAT if create else 0), 0o644)

    def close(self, fd: int) -> None:
        os.close(fd)

    pread = staticmethod(os.pread)
    pwrite = staticmethod(os.pwrite)
    """Static, to save a Python frame on the path of every batch."""

    def is_in_memory(self, fd: int, position: int) -> bool:
        """Whether a read there would be served from the page cache. True if that is unknown."""
        if not _ONLY_FROM_MEMORY:  # without RWF_NOWAIT the probe itself would block
            return True
        try:
            os.preadv(fd, _ONE_BYTE, position, _ONLY_FROM_MEMORY)
        except BlockingIOError:
            return False
        except OSError:  # unsupported file system (tmpfs), or an error that the read will raise too
            return True
        return True

    def ftruncate(self, fd: int, size_bytes: int) -> None:
        os.ftruncate(fd, size_bytes)

    def fdatasync(self, fd: int) -> None:
        os.fdatasync(fd)

    def sync_directory(self, path: str) -> None:
        """Makes the entries of a directory durable."""
        fd = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def stat(self, path: str) -> FileStat:
        found = os.stat(path)
        return FileStat(found.st_size, found.st_mtime_ns // 1_000_000)

    def exists(self, path: str) -> bool:
        """Whether a file or directory exists."""
        return os.path.exists(path)

    def list_names(self, path: str) -> list[str]:
        """The names in a directory, in no order."""
        return os.listdir(path)

    def make_directories(self, path: str) -> None:
        os.makedirs(path)

    def rename(self, path: str, new_path: str) -> None:
        """Renames atomically, replacing any file at `new_path`. Durable once the directory is
        synced."""
        os.rename(path, new_path)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def remove_tree(self, path: str) -> None:
        """Deletes a directory with its content; ignores errors."""
        shutil.rmtree(path, ignore_errors=True)


REAL_CALLS: Final = SystemCalls()


class OpenFile:
    """A file that may or may not be open now. Only OpenFiles uses the fields other than `path`."""

    __slots__ = ("closes_on_release", "fd", "path", "users")

    def __init__(self, path: str) -> None:
        self.path = path
        self.fd = -1
        self.users = 0
        self.closes_on_release = False


Place: TypeAlias = tuple[OpenFile, int]
"""A file and a position in it."""


class FileRange(NamedTuple):
    """A range of bytes in a file."""

    file: OpenFile
    position: int
    size_bytes: int

    @property
    def start(self) -> Place:
        return self.file, self.position

    def load(self) -> None:
        """Loads the range into the page cache. Blocking.

        Opens the file by name with its own descriptor, so it needs no lock and does not care what
        happens to the file meanwhile.
        """
        with suppress(OSError), open(self.file.path, "rb", buffering=0) as file:
            file.seek(self.position)
            left_bytes = self.size_bytes
            while left_bytes > 0 and (data := file.read(min(left_bytes, _LOAD_BYTES))):
                left_bytes -= len(data)


class OpenFiles:
    """At most `files_max` open descriptors, except while more files than that are in use."""

    __slots__ = ("_lock", "_open", "_pinned_count", "calls", "files_max")

    def __init__(self, files_max: int | None = None, calls: SystemCalls | None = None) -> None:
        self.files_max = default_files_max() if files_max is None else files_max
        check(self.files_max >= 1, "a node needs at least one open file")
        self.calls = calls or REAL_CALLS
        self._open: OrderedDict[OpenFile, None] = OrderedDict()
        self._pinned_count = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """The number of open descriptors."""
        return len(self._open)

    def acquire(self, file: OpenFile, *, create: bool = False) -> int:
        """Returns a descriptor that stays valid until `release`. Raises OSError."""
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
            if file.closes_on_release and file.users == 0:
                self._close(file)

    def pin(self, file: OpenFile) -> int:
        """Returns a descriptor that stays valid until `unpin`; -1 if too many files are pinned.

        For files that are written all the time: acquire and release cost more than the rest of a
        small append. At most half of the descriptors can be pinned, so that `files_max` holds.
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
        """Reads `size_bytes` from `position`; fewer only at the end of the file."""
        # `acquire` and `release` are inlined: this is on the path of every fetch.
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
                if file.closes_on_release and file.users == 0:
                    self._close(file)

    def is_in_memory(self, wanted: FileRange) -> bool:
        """Whether `pread` of this range would not wait for the disk, judged by two probes.

        One probe is at the end, which readahead has not reached; the other is at a random position.
        A fixed position would not do: a probe makes the kernel load the pages around it, and the
        next probe of the same place would find those.
        """
        file, position, size_bytes = wanted
        fd, is_in_memory, last = self.acquire(file), self.calls.is_in_memory, max(size_bytes - 1, 0)
        try:
            between = position + int(random() * last)  # noqa: S311 - no secret
            return is_in_memory(fd, position + last) and is_in_memory(fd, between)
        finally:
            self.release(file)

    def pwrite(self, file: OpenFile, data: bytes | bytearray | memoryview, position: int) -> None:
        """Writes all of `data` at `position`, creating the file if needed."""
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
        """The file's size; 0 if it does not exist."""
        try:
            return self.calls.stat(file.path).size_bytes
        except FileNotFoundError:
            return 0

    def modified_ms(self, file: OpenFile) -> int:
        """When the file was last written, in wall-clock milliseconds; 0 if it does not exist."""
        try:
            return self.calls.stat(file.path).modified_ms
        except FileNotFoundError:
            return 0

    def forget(self, file: OpenFile) -> None:
        """Closes the file now, or on release if another thread is using it."""
        with self._lock:
            if file.fd < 0:
                return
            if file.users == 0:
                self._close(file)
            else:
                file.closes_on_release = True

    def retire(self, file: OpenFile) -> None:
        """Marks a file whose name another file is about to take.

        Current users may finish; opening it again raises FileNotFoundError.
        """
        with self._lock:
            file.path += _RETIRED_SUFFIX
        self.forget(file)

    @contextmanager
    def held(self, files: Iterable[OpenFile]) -> Iterator[None]:
        """Keeps files open, so that deleting a large one costs nothing until the block ends."""
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
        """Closes every file."""
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
        file.closes_on_release = False
        fd, file.fd = file.fd, -1
        self.calls.close(fd)


def default_files_max() -> int:
    """A quarter of the process's descriptor limit, within FILES_MIN and FILES_MAX."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return FILES_MAX
    return max(FILES_MIN, min(FILES_MAX, soft // _SHARE_OF_LIMIT))
