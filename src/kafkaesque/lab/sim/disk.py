"""A simulated disk: files in memory with their cached and durable contents, and crashes that lose data.

Implements storage's SystemCalls. The model is as strict as POSIX allows: an fsync makes a file's bytes
durable and nothing else; a name is durable once its directory was synced; any part of what was not synced
may survive, in pages, the last one torn. After a failed fsync the pages count as clean and are never
written (Rebello et al., USENIX ATC '20).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkaesque.broker.storage.open_files import FileStat, SystemCalls
from kafkaesque.model.ids import GroupId

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

JOURNAL_PATH: Final = "/data/raft"
TOPIC: Final = "topic"
"""The topic of every partition; a partition has the number of its group."""
PAGE_SIZE_BYTES: Final = 512
"""A sector, which a disk writes as a whole. Small, so that small files have several."""
_FIRST_FD: Final = 1000


def log_path(group: GroupId) -> str:
    return f"/data/groups/{group}"


# -- one file --------------------------------------------------------------------------------------


class FileChange(NamedTuple):
    """A write, or with `data` None a truncation to `position` bytes."""

    position: int
    data: bytes | None


class Inode:
    """One file: `data` is the page cache, `durable` what certainly survives a crash."""

    __slots__ = ("data", "durable", "modified_ms", "pending")

    def __init__(self) -> None:
        self.data = bytearray()
        self.durable = bytearray()
        self.pending: list[FileChange] = []
        self.modified_ms = 0

    def write(self, data: bytes, position: int, now_ms: int) -> None:
        self._change(FileChange(position, data), now_ms)

    def truncate(self, size_bytes: int, now_ms: int) -> None:
        self._change(FileChange(size_bytes, None), now_ms)

    def _change(self, change: FileChange, now_ms: int) -> None:
        self.pending.append(change)
        self.modified_ms = now_ms
        _apply(self.data, change)

    def sync(self) -> None:
        for change in self.pending:
            _apply(self.durable, change)
        self.pending.clear()

    def fail_sync(self, random: Random) -> None:
        """Some of the pending changes become durable; the rest counts as clean and never does."""
        self._keep_some(random)
        self.pending.clear()

    def crash(self, random: Random) -> None:
        self._keep_some(random)
        self.pending.clear()
        self.data = bytearray(self.durable)

    def is_durable(self, start: int, end: int) -> bool:
        """Whether the bytes [start, end) would be found after any crash."""
        if end > len(self.durable):
            return False
        for change in self.pending:
            if change.data is None:
                if change.position < end:
                    return False
            elif change.position < end and change.position + len(change.data) > start:
                return False
        return True

    def flip_bit(self, position: int, bit: int) -> None:
        """Damage that no write caused, both in the cache and on the disk."""
        for image in (self.data, self.durable):
            if position < len(image):
                image[position] ^= 1 << bit

    def _keep_some(self, random: Random) -> None:
        """Keep nothing, a prefix whose last write is torn, or any pages written after the last truncation."""
        pending = self.pending
        how = random.randrange(3)
        if not pending or how == 0:
            return
        if how == 1:
            count = random.randrange(len(pending))
            for change in pending[:count]:
                _apply(self.durable, change)
            self._tear(pending[count], random)
            return
        cuts = [number for number, change in enumerate(pending) if change.data is None]
        last_cut = cuts[-1] + 1 if cuts else 0
        for change in pending[:last_cut]:
            _apply(self.durable, change)
        for position, data in pending[last_cut:]:
            for page in _pages(position, data or b""):
                if random.randrange(2):
                    _apply(self.durable, page)

    def _tear(self, change: FileChange, random: Random) -> None:
        """Apply a part of a write. Existing bytes are replaced in whole sectors only."""
        position, data = change
        if data is None:
            return
        if position >= len(self.durable):
            _apply(self.durable, FileChange(position, data[: random.randrange(len(data) + 1)]))
            return
        pages = _pages(position, data)
        for page in pages[: random.randrange(len(pages) + 1)]:
            _apply(self.durable, page)


def _apply(image: bytearray, change: FileChange) -> None:
    position, data = change
    if data is None:
        if position < len(image):
            del image[position:]
        else:
            image.extend(bytes(position - len(image)))
        return
    if position > len(image):
        image.extend(bytes(position - len(image)))
    image[position : position + len(data)] = data


def _pages(position: int, data: bytes) -> list[FileChange]:
    """The write, split at page boundaries."""
    parts = []
    start = 0
    while start < len(data):
        size_bytes = PAGE_SIZE_BYTES - (position + start) % PAGE_SIZE_BYTES
        parts.append(FileChange(position + start, data[start : start + size_bytes]))
        start += size_bytes
    return parts


# -- the disk --------------------------------------------------------------------------------------


class PowerCut(BaseException):
    """The machine died within a call. A BaseException, so that no handler of the product catches it."""


@dataclass(slots=True)
class DiskFaults:
    """The faults of the disk from now on."""

    is_full: bool = False
    """Writes that make a file longer fail."""
    sync_failures: int = 0
    """How many of the next fsyncs fail."""
    calls_to_power_cut: int = -1
    """After how many changes the power is cut, within the call; -1: never."""
    is_off: bool = False
    """The power is off: nothing is written any more, but the process has not noticed yet."""


@dataclass(slots=True)
class _Directory:
    """Names. `pending` are changes of names that no sync has made durable, oldest first."""

    names: dict[str, Inode | None] = field(default_factory=dict)
    """None for a directory, which has its own `_Directory`."""
    durable: dict[str, Inode | None] = field(default_factory=dict)
    pending: list[tuple[tuple[str, Inode | None, bool], ...]] = field(default_factory=list)
    """Each change survives as a whole or not at all: (name, inode, exists)."""

    def change(self, *parts: tuple[str, Inode | None, bool]) -> None:
        self.pending.append(parts)
        _perform(self.names, parts)

    def keep(self, count: int) -> None:
        """Makes the first `count` pending changes durable and drops the others."""
        for parts in self.pending[:count]:
            _perform(self.durable, parts)
        self.pending.clear()

    def sync(self) -> None:
        self.keep(len(self.pending))


def _perform(
    names: dict[str, Inode | None], parts: tuple[tuple[str, Inode | None, bool], ...]
) -> None:
    for name, inode, is_there in parts:
        if is_there:
            names[name] = inode
        else:
            names.pop(name, None)


class SimulatedDisk(SystemCalls):
    """All files of one node. `random` decides what survives a crash."""

    def __init__(self, random: Random, wall_ms: Callable[[], int]) -> None:
        self.faults = DiskFaults()
        self.syncs = 0
        self._random = random
        self._wall_ms = wall_ms
        self._directories: dict[str, _Directory] = {"/": _Directory()}
        self._open: dict[int, Inode] = {}
        self._next_fd = _FIRST_FD

    # Crashes

    def process_died(self) -> None:
        """The page cache and all names survive the process; its descriptors do not."""
        self._open.clear()
        self.faults.calls_to_power_cut = -1

    def crash(self) -> None:
        """Loses some or all unsynced changes, and all descriptors."""
        random = self._random
        for directory in self._directories.values():
            directory.keep(random.randrange(len(directory.pending) + 1))
        kept: set[int] = set()
        for directory in self._directories.values():
            directory.names = dict(directory.durable)
            for inode in directory.names.values():
                if inode is not None and id(inode) not in kept:
                    kept.add(id(inode))
                    inode.crash(random)
        self._drop_unreachable()
        self._open.clear()
        self.faults = DiskFaults()

    def wipe(self) -> None:
        """Replaces the disk by an empty one."""
        self._directories = {"/": _Directory()}
        self._open.clear()
        self.faults = DiskFaults()

    def _drop_unreachable(self) -> None:
        """Removes directories whose own name was lost, with their contents."""
        for path in sorted(self._directories):
            if path != "/" and self._entry_missing(path):
                del self._directories[path]

    def _entry_missing(self, path: str) -> bool:
        parent, name = os.path.split(path)
        return parent not in self._directories or name not in self._directories[parent].names

    # Queries of the checkers

    def inode_at(self, path: str) -> Inode | None:
        parent, name = os.path.split(path)
        directory = self._directories.get(parent)
        return None if directory is None else directory.names.get(name)

    def is_name_durable(self, path: str) -> bool:
        """Whether the file of this name, and every directory above, would be found after a crash."""
        parent, name = os.path.split(path)
        directory = self._directories.get(parent)
        if directory is None or directory.durable.get(name) is not directory.names.get(name):
            return False
        return name in directory.durable and (parent == "/" or self.is_name_durable(parent))

    def durable_copy(self, path: str) -> SimulatedDisk:
        """Another disk with the durable contents of one directory, whose own name counts as durable."""
        copy = SimulatedDisk(self._random, self._wall_ms)
        copy.make_directories(path)
        directory = self._directories.get(path)
        for name, inode in directory.durable.items() if directory is not None else ():
            if inode is not None:
                twin = Inode()
                twin.data, twin.durable = bytearray(inode.durable), bytearray(inode.durable)
                copy._directories[path].change((name, twin, True))
        return copy

    def durable_contents(self, path: str) -> dict[str, bytes]:
        """The durable contents of the files in one directory, by name."""
        directory = self._directories.get(path)
        names = {} if directory is None else directory.durable
        return {name: bytes(inode.durable) for name, inode in names.items() if inode is not None}

    def file_paths(self) -> list[str]:
        return [
            os.path.join(path, name)
            for path, directory in self._directories.items()
            for name, inode in directory.names.items()
            if inode is not None
        ]

    # SystemCalls

    def open(self, path: str, *, create: bool) -> int:
        self._check_power()
        directory, name = self._place(path)
        inode = directory.names.get(name)
        if inode is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            self._changes()
            inode = Inode()
            directory.change((name, inode, True))
        fd = self._next_fd
        self._next_fd += 1
        self._open[fd] = inode
        return fd

    def close(self, fd: int) -> None:
        self._open.pop(fd, None)

    def pread(self, fd: int, size_bytes: int, position: int) -> bytes:
        self._check_power()
        return bytes(self._open[fd].data[position : position + size_bytes])

    def is_in_memory(self, fd: int, position: int) -> bool:
        return True

    def pwrite(self, fd: int, data: ReadableBuffer, position: int) -> int:
        inode = self._open[fd]
        copy = bytes(data)
        if self._changes():
            # The write in progress during a power cut is the torn one.
            size_bytes = self._random.randrange(len(copy) + 1)
            if position >= len(inode.data):
                inode.write(copy[:size_bytes], position, self._wall_ms())
            raise PowerCut
        if self.faults.is_full and position + len(copy) > len(inode.data):
            room = max(0, len(inode.data) - position)
            inode.write(copy[:room], position, self._wall_ms())
            raise OSError(errno.ENOSPC, "No space left on device (simulated)")
        inode.write(copy, position, self._wall_ms())
        return len(copy)

    def ftruncate(self, fd: int, size_bytes: int) -> None:
        self._stop_if_cut()
        self._open[fd].truncate(size_bytes, self._wall_ms())

    def fdatasync(self, fd: int) -> None:
        self._stop_if_cut()
        inode = self._open[fd]
        if self.faults.sync_failures > 0 and inode.pending:
            self.faults.sync_failures -= 1
            inode.fail_sync(self._random)
            raise OSError(errno.EIO, "Input/output error (simulated)")
        self.syncs += 1
        inode.sync()

    def sync_directory(self, path: str) -> None:
        self._stop_if_cut()
        self._directory(path).sync()

    def stat(self, path: str) -> FileStat:
        self._check_power()
        inode = self.inode_at(path)
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return FileStat(len(inode.data), inode.modified_ms)

    def exists(self, path: str) -> bool:
        self._check_power()
        return path in self._directories or self.inode_at(path) is not None

    def list_names(self, path: str) -> list[str]:
        self._check_power()
        return list(self._directory(path).names)

    def make_directories(self, path: str) -> None:
        if path in self._directories:
            raise FileExistsError(errno.EEXIST, "there is one", path)
        parent, name = os.path.split(path)
        if parent not in self._directories:
            self.make_directories(parent)
        self._stop_if_cut()
        self._directories[parent].change((name, None, True))
        self._directories[path] = _Directory()

    def rename(self, path: str, new_path: str) -> None:
        """Supports renames within one directory only; the product uses no others."""
        self._stop_if_cut()
        directory, name = self._place(path)
        inode = directory.names.get(name)
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        directory.change((os.path.basename(new_path), inode, True), (name, None, False))

    def unlink(self, path: str) -> None:
        self._stop_if_cut()
        directory, name = self._place(path)
        if directory.names.get(name) is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        directory.change((name, None, False))

    def remove_tree(self, path: str) -> None:
        self._stop_if_cut()
        parent, name = os.path.split(path)
        if path in self._directories:
            self._directories[parent].change((name, None, False))
            for known in list(self._directories):
                if known == path or known.startswith(path + "/"):
                    del self._directories[known]

    # Shared

    def _place(self, path: str) -> tuple[_Directory, str]:
        parent, name = os.path.split(path)
        return self._directory(parent), name

    def _directory(self, path: str) -> _Directory:
        directory = self._directories.get(path)
        if directory is None:
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        return directory

    def _check_power(self) -> None:
        if self.faults.is_off:
            raise PowerCut

    def _changes(self) -> bool:
        """Counts a change; True if the power is cut during it."""
        self._check_power()
        faults = self.faults
        if faults.calls_to_power_cut < 0:
            return False
        faults.calls_to_power_cut -= 1
        faults.is_off = faults.calls_to_power_cut < 0
        return faults.is_off

    def _stop_if_cut(self) -> None:
        if self._changes():
            raise PowerCut
