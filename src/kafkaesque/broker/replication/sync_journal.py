"""A journal that makes the batches of many logs durable with one write and one fdatasync.

A record belongs to its partition's file. Its bytes are also here from the sync that made them
durable until that file is synced (docs/adr/0008 has the reasons and the figures).
`sync_journal_records` defines the file format; `sync_journal_recovery` has the recovery after a
crash.

Why it is safe:

- A log is notified that a batch is durable only after the fdatasync. A failed fdatasync is never
  retried: the file accepts no more writes, and the logs of that round sync their own files, which
  the failure does not affect.
- Before a log loses batches (cut, emptied, replaced), this is recorded and synced here, if the
  journal holds batches of it that recovery would bring back. A round in progress waits or leaves
  the log out. The only exception is deletion, which must work on a full disk; then the next log of
  that group records the cut.
- A file is removed when every log with batches in it has synced its own file. The removal is
  durable (the directory is synced) before anything relies on it.

There are at most two files. While both are full, logs sync their own files.

Threads: any. `_slow` is held from the write of a block to the end of its sync, so a block is
written only when all earlier blocks are durable.
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
        """The offset up to which this file has valid batches of each log."""


class SyncJournal:
    """The sync journal of one node. `open` first recovers and removes the files of the previous
    process."""

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
        """Syncs of logs that were needed to remove journal files."""
        self._directory = str(directory)
        self._data_path = os.path.dirname(self._directory)
        self._files = files
        self._file_size_bytes_max = file_size_bytes_max
        self._current: _File | None = None
        self._closed: list[_File] = []
        """Files that accept no more writes, oldest first."""
        self._logs: dict[GroupId, Tailed] = {}
        """The open logs."""
        self._closed_ends: dict[GroupId, Offset] = {}
        """How far each closed log is durable in its own files."""
        self._paths: dict[GroupId, str] = {}
        self._next_number = 0
        self._is_stopping = False
        self._slow = threading.Lock()

    @classmethod
    def open(
        cls, directory: Path | str, files: OpenFiles, starts: Mapping[GroupId, Offset]
    ) -> SyncJournal:
        """Returns an empty journal, after recovering what a crash left: see
        `recover_sync_journal`."""
        recover_sync_journal(directory, files, starts)
        return cls(directory, files)

    # -- logs ------------------------------------------------------------------------------------

    def attach(self, group: GroupId, log: Tailed) -> None:
        """Lets the log be synced here and record its cuts here. Call it right after opening the
        log. Blocking.

        Batches beyond the log's end belong to a deleted log that could not record its deletion;
        they are voided. Raises StorageFailed if that cannot be recorded.
        """
        with self._slow:
            self._paths[group] = os.path.relpath(log.directory, self._data_path)
            self._cut(group, log.log_end_offset)
            self._closed_ends.pop(group, None)
            self._logs[group] = log
            log.attach_tail(group, self)

    def void(self, group: GroupId) -> None:
        """Voids the batches of a log that is not open and is about to be replaced. Blocking; raises
        StorageFailed."""
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
            # The raft journal has forgotten the group, or will as soon as it can.
            _log.warning("%s; group %d is deleted nevertheless", error, tail.group)
            self._closed_ends[tail.group] = Offset(INT64_MAX)

    def record_closed(self, tail: UnsyncedTail) -> None:
        with self._slow:
            tail.note_cut(_FIRST_OFFSET)
            log = self._logs.get(tail.group)
            if log is not None and log.tail is tail:
                del self._logs[tail.group]
                self._closed_ends.setdefault(tail.group, log.file_synced_offset)

    def _cut(self, group: GroupId, offset: Offset) -> None:
        """Durably voids batches that end after `offset`. Call with `_slow` held. Raises
        StorageFailed."""
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
            records.insert(0, self._log_record(group))
        self._append(current, records, {group: offset})

    # -- rounds ----------------------------------------------------------------------------------

    def has_room(self, size_bytes: int) -> bool:
        """Returns False while logs have to sync their own files because the removal of journal
        files lags."""
        if size_bytes > self._file_size_bytes_max:
            return False
        current = self._current
        if current is None:
            return len(self._closed) < _FILES_MAX
        return not self._closed or self._fits(current, size_bytes)

    def write(self, shares: Sequence[Share]) -> bool:
        """Makes the logs' unsynced batches durable. Blocking.

        Returns False if that is uncertain: the logs have to sync their own files then.
        """
        with self._slow:
            # A share that was cut since it was taken is skipped: the cut is already in the journal,
            # and would have to come after the share.
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
                records.append(self._log_record(group))
            records += _batches_of(share)
            ends[group] = share.end_offset
        self._append(current, records, ends)

    # -- files -----------------------------------------------------------------------------------

    def _live(self) -> list[_File]:
        return self._closed if self._current is None else [*self._closed, self._current]

    def _writable(self, size_bytes: int) -> _File:
        """Returns the file to write to, a new one if the current one is full. Raises OSError."""
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
        """Creates a file. Its header and its name are durable before a block is written."""
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
        """Durably appends a block. After OSError the block is not in the file."""
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
            # After a failed fsync the file's content is unknown (fsyncgate), so nothing may be
            # appended.
            self._close_current(file)
            text = f"fsync of {file.file.path} failed: {error}"
            _log.critical("%s; nothing more is written to it", text)
            raise StorageFailed(text) from error

    def _log_record(self, group: GroupId) -> bytes:
        return log_record(group, self._paths[group])

    # -- removing files --------------------------------------------------------------------------

    @property
    def has_closed_files(self) -> bool:
        """Whether `retire` has something to do."""
        return bool(self._closed)

    def retire(self) -> list[LogLost]:
        """Syncs the logs that have batches in closed files, and removes these files. Blocking.

        Runs in one thread at a time. A file that cannot be removed yet is left for the next call.
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
        """Returns whether every log with batches in the file has them in its own files too."""
        for group, end_offset in file.ends.items():
            log = self._logs.get(group)
            if log is None:
                is_settled = self._closed_ends.get(group, 0) >= end_offset
            else:
                # A cut within a batch removed the whole batch, so the log may end before the cut's
                # offset.
                is_settled = log.file_synced_offset >= min(end_offset, log.log_end_offset)
            if not is_settled:
                return False
        return True

    def _remove(self, files: Sequence[_File]) -> None:
        """Removes files durably: a file that came back after a crash would restore batches that
        were cut since."""
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
        """Makes `retire` return soon."""
        self._is_stopping = True

    def close(self, *, clean: bool) -> None:
        """Closes the journal. With `clean`, removes all files; all logs are closed, and synced if
        possible."""
        with self._slow:
            try:
                if clean and all(map(self._is_settled, self._live())):
                    self._remove(self._live())
                elif clean:
                    _log.warning("%s is kept: a log has not synced its own files", self._directory)
            except OSError as error:
                raise StorageFailed(f"cannot clean {self._directory}: {error}") from error
            finally:
                for file in self._live():
                    self._files.forget(file.file)

    def restore(self, group: GroupId, log: Log, start_offset: Offset) -> None:
        """Appends to the log the batches that it lacks and the journal has. The log is not
        attached; its entries begin at `start_offset`. Blocking. Raises CorruptMessage and
        StorageFailed."""
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
    """Returns the records of a share's batches, one record per segment."""
    group, batches = share.tail.group, share.batches
    first = batches[0].segment_base_offset
    if batches[-1].segment_base_offset == first:
        return [batches_record(group, first, [batch.data for batch in batches])]
    return [
        batches_record(group, base_offset, [batch.data for batch in run])
        for base_offset, run in groupby(batches, key=attrgetter("segment_base_offset"))
    ]
