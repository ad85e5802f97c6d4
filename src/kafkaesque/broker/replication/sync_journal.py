"""One journal for what many logs have to sync: their batches, in one write and one fdatasync.

The home of a record is its partition's file. Its bytes stand here too, from the sync that made them
durable until the file itself was synced (docs/adr/0008 has the reasons and the figures). What a file
says is in `sync_journal_records`; how it is used after a crash in `sync_journal_recovery`.

What keeps it safe:

- A log is told that a batch is durable only after the fdatasync. A failed one is never tried again:
  the file takes no more, and the logs of that round sync their own files, of which it says nothing.
- A log that loses batches (cut, emptied, replaced) has that written and synced here first, if there is
  something of it here that would be brought back. A round under way waits or leaves the log out. Only
  to be deleted a log needs no leave: a full disk may be the reason. Whoever comes in its place does.
- A file is removed when every log with something in it has synced its own file, and it is gone for
  good (its directory is synced) before anybody relies on that.

There are at most two files, and while both are full logs sync their own files.
Threads: any; `_slow` is held from a block's write to the end of its sync, so that a block is only
written when all before it are durable.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import threading
from collections.abc import Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Final, NamedTuple

from kafkaesque.broker.replication.rules.sync_journal_records import (
    batches_record,
    block,
    cut_record,
    file_header,
    log_record,
)
from kafkaesque.broker.replication.sync_journal_recovery import (
    FILE_PREFIX,
    FILE_SUFFIX,
    read_files,
    recover_sync_journal,
    restore_log,
)
from kafkaesque.broker.storage.log import Log
from kafkaesque.broker.storage.open_files import OpenFile, OpenFiles
from kafkaesque.broker.storage.unsynced_tail import Share, Tailed, UnsyncedTail
from kafkaesque.model.errors import StorageFailed
from kafkaesque.model.ids import GroupId, Offset
from kafkaesque.model.setting import INT64_MAX

_log = logging.getLogger("kafkaesque.broker.replication")

FILE_SIZE_BYTES_MAX: Final = 64 * 1024 * 1024
LOGS_MIN: Final = 5
"""With fewer logs to sync, each syncs its own file, and nothing is written twice."""
_FILES_MAX: Final = 2
_FIRST_OFFSET: Final = Offset(0)


class LogLost(NamedTuple):
    """A log whose own file could not be synced."""

    group: GroupId
    log: Tailed
    error: StorageFailed


class _File:
    """One file of the journal."""

    __slots__ = ("block_count", "ends", "file", "file_id", "size_bytes")

    def __init__(self, path: str) -> None:
        self.file = OpenFile(path)
        self.file_id = secrets.randbits(64)
        self.size_bytes = 0
        self.block_count = 0
        self.ends: dict[GroupId, Offset] = {}
        """Up to where each log has something in it that counts."""


class SyncJournal:
    """Of one node. Before it is made, `sync_journal_recovery` has removed the files of before."""

    def __init__(
        self,
        directory: Path | str,
        files: OpenFiles,
        *,
        file_size_bytes_max: int = FILE_SIZE_BYTES_MAX,
        logs_min: int = LOGS_MIN,
    ) -> None:
        self.logs_min = logs_min
        self.syncs_total = 0
        self.log_syncs_total = 0
        """Of logs, so that files could be removed."""
        self._directory = str(directory)
        self._data_path = os.path.dirname(self._directory)
        self._files = files
        self._file_size_bytes_max = file_size_bytes_max
        self._current: _File | None = None
        self._closed: list[_File] = []
        """Those that take no more, oldest first."""
        self._logs: dict[GroupId, Tailed] = {}
        """Those that are open."""
        self._left: dict[GroupId, Offset] = {}
        """How far those that were closed are whole in their own files."""
        self._paths: dict[GroupId, str] = {}
        self._next_number = 0
        self._is_stopping = False
        self._slow = threading.Lock()

    @classmethod
    def open(
        cls, directory: Path | str, files: OpenFiles, starts: Mapping[GroupId, Offset]
    ) -> SyncJournal:
        """An empty one, after what a crash left is in the logs: see `recover_sync_journal`."""
        recover_sync_journal(directory, files, starts)
        return cls(directory, files)

    # -- logs ------------------------------------------------------------------------------------

    def attach(self, group: GroupId, log: Tailed) -> None:
        """Let the log be synced here, and hear of its cuts. Right after it was opened. Blocking.

        What is here behind its end is of one that was deleted before it could say so, and void.
        StorageFailed if that cannot be noted.
        """
        with self._slow:
            self._paths[group] = os.path.relpath(log.directory, self._data_path)
            self._cut(group, log.log_end_offset)
            self._left.pop(group, None)
            self._logs[group] = log
            log.tail = UnsyncedTail(group, log.log_end_offset, self, log.note_durable)

    def void(self, group: GroupId) -> None:
        """The log, which is not open, is about to be replaced. Blocking; raises StorageFailed."""
        with self._slow:
            self._cut(group, _FIRST_OFFSET)

    def record_cut(self, tail: UnsyncedTail, offset: Offset) -> None:
        with self._slow:
            self._cut(tail.group, offset)
            tail.note_cut(offset)

    def record_deleted(self, tail: UnsyncedTail) -> None:
        try:
            self.record_cut(tail, _FIRST_OFFSET)
        except StorageFailed as error:
            # The raft journal does not know the group any more, or will not as soon as it can.
            _log.warning("%s; group %d is deleted all the same", error, tail.group)
            self._left[tail.group] = Offset(INT64_MAX)

    def record_closed(self, tail: UnsyncedTail) -> None:
        with self._slow:
            tail.note_cut(_FIRST_OFFSET)
            log = self._logs.get(tail.group)
            if log is not None and log.tail is tail:
                del self._logs[tail.group]
                self._left.setdefault(tail.group, log.file_synced_offset)

    def _cut(self, group: GroupId, offset: Offset) -> None:
        """With `_slow` held: what ends behind `offset` is void, durably. Raises StorageFailed."""
        if any(file.ends.get(group, offset) > offset for file in self._live()):
            try:
                self._write_cut(group, offset)
            except OSError as error:
                text = f"cannot record a cut in {self._directory}: {error}"
                raise StorageFailed(text) from error
        for file in self._live():
            if group in file.ends:
                file.ends[group] = min(file.ends[group], offset)

    def _write_cut(self, group: GroupId, offset: Offset) -> None:
        """Raises OSError or StorageFailed."""
        current = self._writable(0)
        records = [cut_record(group, offset)]
        if group not in current.ends:
            records.insert(0, self._introduction(group))
        self._append(current, records, {group: offset})

    # -- rounds ----------------------------------------------------------------------------------

    def has_room(self, size_bytes: int) -> bool:
        """False while logs have to sync their own files, since removing files here lags behind."""
        if size_bytes > self._file_size_bytes_max:
            return False
        current = self._current
        if current is None:
            return len(self._closed) < _FILES_MAX
        return not self._closed or self._fits(current, size_bytes)

    def write(self, shares: Sequence[Share]) -> bool:
        """Make durable what the logs have to sync. Blocking.

        False if that cannot be said: the logs have to sync their own files.
        """
        with self._slow:
            # Cut since it was taken: the cut stands here already, and must stand behind it.
            valid = [share for share in shares if share.is_current and share.batches]
            if not valid:
                return True
            try:
                self._write_batches(valid)
            except (OSError, StorageFailed) as error:
                _log.warning("cannot write to %s: %s", self._directory, error)
                return False
            return True

    def _write_batches(self, shares: Sequence[Share]) -> None:
        """Raises OSError or StorageFailed."""
        current = self._writable(sum(share.size_bytes for share in shares))
        records: list[bytes] = []
        ends: dict[GroupId, Offset] = {}
        for share in shares:
            group = share.tail.group
            if group not in current.ends:
                records.append(self._introduction(group))
            records += _batches_of(share)
            ends[group] = share.end_offset
        self._append(current, records, ends)

    # -- files -----------------------------------------------------------------------------------

    def _live(self) -> list[_File]:
        return self._closed if self._current is None else [*self._closed, self._current]

    def _writable(self, size_bytes: int) -> _File:
        """The file that is written to, a new one if it is time. Raises OSError."""
        current = self._current
        if current is not None and not self._closed and not self._fits(current, size_bytes):
            self._close_current(current)
        if self._current is None:
            self._current = self._new_file()
        return self._current

    def _fits(self, file: _File, size_bytes: int) -> bool:
        is_new = file.block_count == 0
        return is_new or file.size_bytes + size_bytes <= self._file_size_bytes_max

    def _close_current(self, current: _File) -> None:
        self._closed.append(current)
        self._current = None

    def _new_file(self) -> _File:
        """Its header and its name are durable before a block is written."""
        path = f"{self._directory}/{FILE_PREFIX}{self._next_number:08d}{FILE_SUFFIX}"
        self._next_number += 1
        new = _File(path)
        try:
            header = file_header(new.file_id)
            self._files.pwrite(new.file, header, 0)
            self._files.sync(new.file)
            self._files.calls.sync_directory(self._directory)
        except OSError:
            self._files.forget(new.file)
            with contextlib.suppress(OSError):
                self._files.calls.unlink(path)
            raise
        new.size_bytes = len(header)
        return new

    def _append(
        self, file: _File, records: Sequence[bytes], ends: Mapping[GroupId, Offset]
    ) -> None:
        """A block, durably. After OSError it is not there."""
        data = block(file.file_id, file.block_count, records)
        self._files.pwrite(file.file, data, file.size_bytes)
        file.ends.update(ends)
        self._sync_file(file)
        file.size_bytes += len(data)
        file.block_count += 1
        self.syncs_total += 1

    def _sync_file(self, file: _File) -> None:
        try:
            self._files.sync(file.file)
        except OSError as error:
            # What the disk has is not known any more (fsyncgate): nothing follows in this file.
            self._close_current(file)
            text = f"fsync of {file.file.path} failed: {error}"
            _log.critical("%s; it takes no more", text)
            raise StorageFailed(text) from error

    def _introduction(self, group: GroupId) -> bytes:
        return log_record(group, self._paths[group])

    # -- removing files --------------------------------------------------------------------------

    @property
    def has_closed_files(self) -> bool:
        """True if `retire` has something to do."""
        return bool(self._closed)

    def retire(self) -> list[LogLost]:
        """Sync the logs that have something in closed files, and remove these. Blocking.

        One thread at a time. A file that cannot be removed yet is left for the next call.
        """
        while self._closed and not self._is_stopping:
            file = self._closed[0]
            lost = self._sync_logs(file)
            if lost or not self._remove_if_settled(file):
                return lost
        return []

    def _sync_logs(self, file: _File) -> list[LogLost]:
        with self._slow:
            ends = dict(file.ends)
        lost = []
        for group, end_offset in ends.items():
            log = self._logs.get(group)
            if log is None or log.file_synced_offset >= end_offset:
                continue
            if self._is_stopping:
                break
            self.log_syncs_total += 1
            try:
                log.sync_if_open()
            except StorageFailed as error:
                lost.append(LogLost(group, log, error))
        return lost

    def _remove_if_settled(self, file: _File) -> bool:
        with self._slow:
            if not self._is_settled(file):
                return False
            try:
                self._remove([file])
            except OSError as error:
                _log.warning("cannot remove %s: %s", file.file.path, error)
                return False
            self._closed.remove(file)
            return True

    def _is_settled(self, file: _File) -> bool:
        """Whether every log with something in it has that in its own files too."""
        for group, end_offset in file.ends.items():
            log = self._logs.get(group)
            if log is None:
                is_settled = self._left.get(group, 0) >= end_offset
            else:
                # A cut within a batch took all of it, so the log may end before what was cut.
                is_settled = log.file_synced_offset >= min(end_offset, log.log_end_offset)
            if not is_settled:
                return False
        return True

    def _remove(self, files: Sequence[_File]) -> None:
        """For good: one that came back after a crash would bring back what was cut since."""
        for file in files:
            self._files.forget(file.file)
            with contextlib.suppress(FileNotFoundError):
                self._files.calls.unlink(file.file.path)
        if files:
            self._files.calls.sync_directory(self._directory)

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in tuple(self._live()))

    def stop_retiring(self) -> None:
        """Let `retire` return soon."""
        self._is_stopping = True

    def close(self, *, clean: bool) -> None:
        """Remove everything, if `clean`: all logs are closed, and all that could be are synced."""
        with self._slow:
            try:
                if clean and all(map(self._is_settled, self._live())):
                    self._remove(self._live())
                elif clean:
                    _log.warning("%s keeps what a log has nowhere else", self._directory)
            except OSError as error:
                raise StorageFailed(f"cannot clean {self._directory}: {error}") from error
            finally:
                for file in self._live():
                    self._files.forget(file.file)

    def restore(self, group: GroupId, log: Log, start_offset: Offset) -> None:
        """Append to the log, which is not attached, what is here and it lacks; its entries begin at
        `start_offset`. Blocking. Raises CorruptMessage and StorageFailed.
        """
        with self._slow:
            files = [file for file in self._live() if group in file.ends]
            if all(file.ends[group] <= log.log_end_offset for file in files):
                return
            paths = [file.file.path for file in files]
            try:
                found = read_files(paths, self._files).get(group)
            except OSError as error:
                raise StorageFailed(f"cannot read the sync journal: {error}") from error
        if found is not None:
            restore_log(log, found, start_offset)


def _batches_of(share: Share) -> list[bytes]:
    """Its batches, those of one segment together."""
    group, batches = share.tail.group, share.batches
    first = batches[0].segment_base_offset
    if batches[-1].segment_base_offset == first:
        return [batches_record(group, first, [batch.data for batch in batches])]
    return [
        batches_record(group, base_offset, [batch.data for batch in run])
        for base_offset, run in groupby(batches, key=attrgetter("segment_base_offset"))
    ]
