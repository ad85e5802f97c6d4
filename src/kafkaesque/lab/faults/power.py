"""A simulated power cut after kill -9: unsynced data may survive, in part, garbled, or not at all.

`PowerJournal` reads the journal of the shim (shims/power.c) and derives what is durable; it does no I/O.
`cut_power` changes the files to what a disk may have kept:

- a file may end anywhere between its durable and its real length, and pages after the durable length may
  be as written, zeros, or noise;
- overwritten bytes may revert to any earlier state since the file was last synced;
- names created, renamed or removed since their directory was synced may or may not be, later ones only if
  the earlier ones are (file systems journal names in order).

Not simulated: truncated bytes coming back, and damage to synced data.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from kafkaesque.lab.faults import shims

_PAGE_BYTES: Final = 4096
_NO_BACKUP: Final = "-"


class NameChange(NamedTuple):
    """A rename, or a removal if `old` is empty; `backup` is a link to the previous file at `new`."""

    line: int
    old: str
    new: str
    backup: str
    backup_length: int
    """The durable length of that previous file."""


class Overwrite(NamedTuple):
    """Bytes as they were before they were overwritten."""

    line: int
    position: int
    old: bytes


class _Sync(NamedTuple):
    line: int
    path: str
    size_bytes: int
    names: list[str]


class PowerJournal:
    """The durable state, according to the lines read so far."""

    def __init__(self, sizes: dict[str, int], directories: Iterable[str] = ()) -> None:
        """`sizes` of the files that existed at the start, all of them durable."""
        self.lengths = dict(sizes)
        self.names = {*sizes, *directories}
        self.overwrites: dict[str, list[Overwrite]] = {}
        self.name_changes: list[NameChange] = []
        self.syncs = 0
        self._begun: dict[str, _Sync] = {}
        self._line = 0

    def read(self, line: str) -> None:
        """A line without a line feed is the last one: the process was killed while writing it, and so
        before the announced call was made, or before the completed sync was reported."""
        if not line.endswith("\n"):
            return
        kind, *fields = line.rstrip("\n").split("\t")
        self._line += 1
        if kind == "B":
            self._begun[fields[0]] = _Sync(self._line, fields[2], int(fields[1]), [])
        elif kind == "D":
            self._begun[fields[0]] = _Sync(self._line, fields[1], -1, [])
        elif kind == "N":
            self._begun[fields[0]].names.append(fields[1])
        elif kind == "E":
            self._synced(self._begun.pop(fields[0]))
        elif kind == "O":
            old = Overwrite(self._line, int(fields[0]), bytes.fromhex(fields[1]))
            self.overwrites.setdefault(fields[2], []).append(old)
        elif kind == "T":
            self.lengths[fields[1]] = min(self.lengths.get(fields[1], 0), int(fields[0]))
        elif kind == "R":
            self._renamed(*fields)
        elif kind == "U":
            length = self.lengths.pop(fields[1], 0)
            self.name_changes.append(NameChange(self._line, "", fields[1], fields[0], length))

    def _synced(self, sync: _Sync) -> None:
        """Everything that existed when the sync began is durable now."""
        self.syncs += 1
        if sync.size_bytes >= 0:
            self.lengths[sync.path] = sync.size_bytes
            later = [one for one in self.overwrites.get(sync.path, ()) if one.line > sync.line]
            self.overwrites[sync.path] = later
            return
        self.names.update(sync.names)
        self.name_changes = [
            one
            for one in self.name_changes
            if one.line > sync.line or os.path.dirname(one.new) != sync.path
        ]

    def _renamed(self, backup: str, old: str, new: str) -> None:
        change = NameChange(self._line, old, new, backup, self.lengths.pop(new, 0))
        self.name_changes.append(change)
        self.lengths[new] = self.lengths.pop(old, 0)
        self.overwrites[new] = self.overwrites.pop(old, [])


class Losses(NamedTuple):
    """The data that a power cut destroyed."""

    bytes_lost: int
    bytes_garbled: int
    names_undone: int


def cut_power(root: Path, journal: PowerJournal, rng: random.Random) -> Losses:
    """Change the files under `root` to what a disk may have kept. The process must be dead."""
    undone = _undo_names(journal, rng) + _drop_new_names(root, journal, rng)
    lost = garbled = 0
    for path in sorted(root.rglob("*")):
        if path.is_file():
            one_lost, one_garbled = _cut_file(path, journal, rng)
            lost += one_lost
            garbled += one_garbled
    return Losses(lost, garbled, undone)


def _undo_names(journal: PowerJournal, rng: random.Random) -> int:
    changes = journal.name_changes
    kept = rng.randint(0, len(changes))
    journal.names.update(change.new for change in changes[:kept] if change.old)
    for change in reversed(changes[kept:]):
        if change.old and os.path.exists(change.new):
            os.rename(change.new, change.old)
            journal.lengths[change.old] = journal.lengths.get(change.new, 0)
        if change.backup != _NO_BACKUP and not os.path.exists(change.new):
            shutil.copyfile(change.backup, change.new)
            journal.lengths[change.new] = change.backup_length
    return len(changes) - kept


def _drop_new_names(root: Path, journal: PowerJournal, rng: random.Random) -> int:
    dropped = 0
    for path in sorted(root.rglob("*")):
        if str(path) in journal.names or not path.exists() or rng.random() < 0.5:
            continue
        dropped += 1
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    return dropped


def _cut_file(path: Path, journal: PowerJournal, rng: random.Random) -> tuple[int, int]:
    """Returns how many bytes were cut off, and how many differ from what was written."""
    durable = journal.lengths.get(str(path), 0)
    size = path.stat().st_size
    overwrites = journal.overwrites.get(str(path), [])
    garbled = 0
    with path.open("r+b") as file:
        for old in reversed(overwrites[rng.randint(0, len(overwrites)) :]):
            file.seek(old.position)
            file.write(old.old)
            garbled += len(old.old)
        if size <= durable:
            return 0, garbled
        end = rng.choice([durable, size, rng.randint(durable, size)])
        file.truncate(end)
        return size - end, garbled + _garble(file.fileno(), durable, end, rng)


def _garble(fd: int, start: int, end: int, rng: random.Random) -> int:
    garbled = 0
    while start < end:
        following = min(end, (start // _PAGE_BYTES + 1) * _PAGE_BYTES)
        fate = rng.choice(["kept", "kept", "zeros", "noise"])
        if fate != "kept":
            length = following - start
            os.pwrite(fd, bytes(length) if fate == "zeros" else rng.randbytes(length), start)
            garbled += length
        start = following
    return garbled


def scan(root: Path) -> PowerJournal:
    """A journal in which everything under `root` is durable."""
    paths = [root, *root.rglob("*")] if root.exists() else [root]
    sizes = {str(path): path.stat().st_size for path in paths if path.is_file()}
    return PowerJournal(sizes, [str(path) for path in paths if path.is_dir()] or [str(root)])


class PoweredDisk:
    """The disk of one broker that runs with `environment`, whose shim journals what is durable."""

    def __init__(self, data: Path, place: Path) -> None:
        self._data = data
        self._place = place
        (place / "backups").mkdir(parents=True)
        self.environment = {
            "LD_PRELOAD": str(shims.build("power", place)),
            "KAFKAESQUE_POWER_ROOT": str(data),
            "KAFKAESQUE_POWER_JOURNAL": str(place / "journal"),
            "KAFKAESQUE_POWER_BACKUPS": str(place / "backups"),
        }
        self._journal = scan(data)
        self.syncs_seen = 0

    def cut(self, rng: random.Random) -> Losses:
        """Remove unsynced data from the disk; the broker must be dead."""
        journal = self._place / "journal"
        if journal.exists():
            with journal.open() as lines:
                for line in lines:
                    self._journal.read(line)
            journal.unlink()
        self.syncs_seen += self._journal.syncs
        losses = cut_power(self._data, self._journal, rng)
        for backup in (self._place / "backups").iterdir():
            backup.unlink()
        # The next start begins with what the disk kept.
        self._journal = scan(self._data)
        return losses
