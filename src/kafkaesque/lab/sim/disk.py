"""A disk that forgets: files in memory with what is written, what is durable, and what a crash leaves.

Stands in for the operating system behind storage's SystemCalls. The model is as unkind as POSIX
allows: an fsync makes a file's bytes durable and nothing else; a name is durable when its directory
was synced; of what was not synced any part may survive, in pages, the last one torn. After a failed
fsync the pages count as clean and are never written (Rebello et al., USENIX ATC '20).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Final

from kafkaesque.broker.storage.open_files import FileStat, SystemCalls
from kafkaesque.lab.sim.inode import Inode

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_FIRST_FD: Final = 1000


class PowerCut(BaseException):
    """The machine died within a call. No handler of the product may stop this one."""


@dataclass(slots=True)
class DiskFaults:
    """What goes wrong from now on."""

    is_full: bool = False
    """Writes that make a file longer fail."""
    sync_failures: int = 0
    """So many fsyncs of files fail."""
    calls_to_power_cut: int = -1
    """The power goes within the call so many changes from now; -1 is never."""
    is_off: bool = False
    """Nothing is written any more: the power is gone, the process just has not noticed."""


@dataclass(slots=True)
class _Directory:
    """Names. `pending` are changes of names that no sync has made durable, oldest first."""

    names: dict[str, Inode | None] = field(default_factory=dict)
    """None for a directory, whose own names stand elsewhere."""
    durable: dict[str, Inode | None] = field(default_factory=dict)
    pending: list[tuple[tuple[str, Inode | None, bool], ...]] = field(default_factory=list)
    """Each a change that is there as a whole or not at all: (name, inode, is there)."""

    def change(self, *parts: tuple[str, Inode | None, bool]) -> None:
        self.pending.append(parts)
        _perform(self.names, parts)

    def keep(self, count: int) -> None:
        """The first `count` pending changes are durable, the others never happened."""
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

    # What a crash does

    def process_died(self) -> None:
        """The page cache and all names outlive it; not its descriptors."""
        self._open.clear()
        self.faults.calls_to_power_cut = -1

    def crash(self) -> None:
        """Lose what was not synced, or some of it; all descriptors with it."""
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
        """A new disk."""
        self._directories = {"/": _Directory()}
        self._open.clear()
        self.faults = DiskFaults()

    def _drop_unreachable(self) -> None:
        """A directory whose own name was lost is lost with all in it."""
        for path in sorted(self._directories):
            if path != "/" and self._entry_missing(path):
                del self._directories[path]

    def _entry_missing(self, path: str) -> bool:
        parent, name = os.path.split(path)
        return parent not in self._directories or name not in self._directories[parent].names

    # What the checkers look at

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
        """Another disk with what is durable of one directory, whose own name is taken as such."""
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
        """What is durable of the files in one directory, by name."""
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
            # The write under way when the power goes is the one that is torn.
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
        """Within one directory, as all of ours are."""
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
        """Count a change; True if the power goes within it."""
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
