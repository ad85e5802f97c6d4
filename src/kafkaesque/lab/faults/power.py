"""A power cut, played after kill -9: what was not synced may be there, in part, garbled, or gone.

`PowerJournal` reads what the shim (shims/power.c) wrote down and knows what is durable; it does no
I/O. `cut_power` takes the rest away from the files, as a disk may have left it:

- a file may end anywhere between its durable and its real length, and pages behind the durable
  length may be as written, zeros, or noise;
- overwritten bytes may be back to any earlier state since the file was last synced;
- names made, renamed or removed since their directory was synced may be so or not, later ones only
  if the earlier ones are (file systems journal names in order).

Not played: bytes that were cut off coming back, and damage to what was synced.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

_PAGE_BYTES: Final = 4096
_NO_BACKUP: Final = "-"


class NameChange(NamedTuple):
    """A rename, or a removal if `old` is empty; `backup` is a link to what stood at `new`."""

    line: int
    old: str
    new: str
    backup: str
    backup_length: int
    """How much of what stood there was durable."""


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
    """What is durable, as far as the lines read so far tell."""

    def __init__(self, sizes: dict[str, int], directories: Iterable[str] = ()) -> None:
        """`sizes` of the files there were at the start, all of them durable."""
        self.lengths = dict(sizes)
        self.names = {*sizes, *directories}
        self.overwrites: dict[str, list[Overwrite]] = {}
        self.name_changes: list[NameChange] = []
        self.syncs = 0
        self._begun: dict[str, _Sync] = {}
        self._line = 0

    def read(self, line: str) -> None:
        """A line without an end is the last: the kill came while it was written, and so before what it
        announces was done, or before the sync that it tells of was reported."""
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
        """All that was there when the sync began is durable now."""
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
    """What a power cut took."""

    bytes_lost: int
    bytes_garbled: int
    names_undone: int


def cut_power(root: Path, journal: PowerJournal, rng: random.Random) -> Losses:
    """Leave under `root` what a disk may have kept. The process must be dead."""
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
    """Bytes taken from its end, and bytes that are not what was written."""
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
    """A journal in which everything that is under `root` now is durable."""
    paths = [root, *root.rglob("*")] if root.exists() else [root]
    sizes = {str(path): path.stat().st_size for path in paths if path.is_file()}
    return PowerJournal(sizes, [str(path) for path in paths if path.is_dir()] or [str(root)])
