"""One file for the small facts of all Raft groups of a node, so that one fsync serves them all.

It holds terms and votes, entries without batches (no-ops, memberships, trims), and the start of
each log. `journal_records` defines the records; this module has the file, its syncs and its
checkpoints.

`save_*` and similar methods change the facts at once and queue a record in memory. `sync` writes
the queue and makes it durable; a crash before that loses it. A position counts all bytes saved by
this process, whatever file they went to: what was saved before `position` was read is durable once
`synced_position` has reached that value.

The file begins with a header that records how far the file was durable when the header was last
written. An unreadable record before that point is damage and stops the node, because a vote may be
lost. An unreadable record after it was torn by a crash; it is cut off with all that follow.

A file that has grown far beyond the facts is replaced by a checkpoint: the facts are written to a
new file, which is synced and renamed over the old one.

Threads: `sync` may be called from any thread; everything else belongs to the owner's thread.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from kafkaesque.broker.raft.types import HardState, LogIndex
from kafkaesque.broker.replication.rules.journal_records import (
    HEADER_SIZE_BYTES,
    AnyRecord,
    Closed,
    Closing,
    CommitSaved,
    ControlCut,
    ControlEntry,
    ControlSaved,
    Created,
    Forgotten,
    GroupFacts,
    HardStateSaved,
    LogStart,
    Reset,
    ResetDone,
    StartMoved,
    decode_header,
    encode_header,
    frame,
    records_of,
    replay,
    unframe,
)
from kafkaesque.broker.storage.open_files import OpenFile, OpenFiles
from kafkaesque.model.errors import CorruptMessage, StorageFailed, check
from kafkaesque.model.ids import GroupId, Offset

__all__ = ["Closing", "ControlEntry", "GroupFacts", "LogStart", "RaftJournal"]

_log = logging.getLogger("kafkaesque.broker.replication")

FILE_NAME: Final = "raft.journal"
_TEMPORARY_SUFFIX: Final = ".tmp"
_CHECKPOINT_SIZE_BYTES_MIN: Final = 1024 * 1024
_CHECKPOINT_GROWTH: Final = 4
"""A checkpoint is due when the file has grown to this multiple of the last checkpoint."""


class RaftJournal:
    """The facts of all groups and the file that holds them. Create it with `open`."""

    __slots__ = (
        "_checkpoint_due_bytes",
        "_failure",
        "_file",
        "_file_end",
        "_files",
        "_groups",
        "_hints",
        "_lock",
        "_pending",
        "_slow",
        "position",
        "synced_position",
        "syncs_total",
    )

    def __init__(self, path: str, files: OpenFiles, *, first_checkpoint_bytes: int) -> None:
        self._files = files
        self._file = OpenFile(path)
        self._file_end = 0
        """Everything before it is durable. Only the holder of `_slow` touches the file."""
        self._checkpoint_due_bytes = first_checkpoint_bytes
        self._groups: dict[GroupId, GroupFacts] = {}
        self._pending = bytearray()
        """Framed records that are not in the file yet."""
        self._hints: dict[GroupId, LogIndex] = {}
        """Commit indexes, written with the next record."""
        self._failure: str | None = None
        self._lock = threading.Lock()
        """Guards the facts and the pending records. Held briefly."""
        self._slow = threading.Lock()
        """Held by `sync` from start to end. Acquired before `_lock`."""
        self.position = 0
        """The end of everything saved so far."""
        self.synced_position = 0
        """Everything saved before it is durable. synced_position <= position."""
        self.syncs_total = 0

    @classmethod
    def open(
        cls,
        directory: Path | str,
        files: OpenFiles,
        *,
        first_checkpoint_bytes: int = _CHECKPOINT_SIZE_BYTES_MIN,
    ) -> RaftJournal:
        """Opens the journal in `directory`; creates both if absent. Blocking; its content is
        durable. The first checkpoint is due when the file exceeds `first_checkpoint_bytes`.

        Raises CorruptMessage with the damaged position, or StorageFailed on a disk error.
        """
        path = f"{directory}/{FILE_NAME}"
        journal = cls(path, files, first_checkpoint_bytes=first_checkpoint_bytes)
        try:
            with contextlib.suppress(FileNotFoundError):
                files.calls.unlink(path + _TEMPORARY_SUFFIX)
            if files.calls.exists(path):
                journal._recover()
            else:
                journal._begin(str(directory))
        except OSError as error:
            raise StorageFailed(f"cannot open {path}: {error}") from error
        return journal

    def facts(self, group: GroupId) -> GroupFacts | None:
        """Returns the group's facts; None if the group is not on this node. The object changes with
        later saves."""
        return self._groups.get(group)

    def groups(self) -> list[GroupId]:
        return sorted(self._groups)

    def starts(self) -> dict[GroupId, Offset]:
        """Returns the offset at which the entries of each group begin in its log."""
        return {group: facts.start.offset for group, facts in self._groups.items()}

    @property
    def failure(self) -> str | None:
        """Why the journal will never write again; None while it still can."""
        return self._failure

    @property
    def needs_sync(self) -> bool:
        return self.synced_position < self.position

    # -- saving ----------------------------------------------------------------------------------

    def create(self, group: GroupId, start: LogStart) -> None:
        """Adds a new group that begins with `start`."""
        check(group not in self._groups, f"group {group} is in the journal already")
        self._save(Created(group, start))

    def save_hard_state(self, group: GroupId, hard_state: HardState) -> None:
        self._save(HardStateSaved(group, *hard_state))

    def save_control(self, group: GroupId, entry: ControlEntry) -> None:
        control = self._groups[group].control
        last_index = control[-1].index if control else self._groups[group].start.index
        check(entry.index > last_index, f"group {group}: entry {entry.index} is there already")
        self._save(ControlSaved(group, entry))

    def cut_from(self, group: GroupId, index: LogIndex) -> None:
        """Removes the control entries from `index` on."""
        control = self._groups[group].control
        if control and control[-1].index >= index:
            self._save(ControlCut(group, index))

    def move_start(self, group: GroupId, start: LogStart) -> None:
        """Records that entries up to `start.index` are no longer needed."""
        self._save(StartMoved(group, start))

    def reset(self, group: GroupId, start: LogStart, *, is_pending: bool) -> None:
        """Replaces the log by `start`. With `is_pending` the log holds old batches until
        `reset_done`; anyone who opens it in between has to empty it."""
        self._save(Reset(group, start, is_pending))

    def reset_done(self, group: GroupId) -> None:
        self._save(ResetDone(group))

    def save_commit(self, group: GroupId, index: LogIndex) -> None:
        """Saves a hint for the next start. It is written with the next record and never causes a
        sync."""
        with self._lock:
            self._groups[group].commit_index = index
            self._hints[group] = index

    def save_closing(self, group: GroupId, closing: Closing) -> None:
        """Saves how the log ends, so that a start after a clean stop need not count entries."""
        self._save(Closed(group, *closing))

    def take_closing(self, group: GroupId) -> Closing | None:
        """Returns and clears what `save_closing` saved; None if the group has changed since."""
        with self._lock:
            facts = self._groups[group]
            closing, facts.closing = facts.closing, None
            return closing

    def forget(self, group: GroupId) -> None:
        """Removes a group that is no longer on this node."""
        if group in self._groups:
            self._save(Forgotten(group))
            self._hints.pop(group, None)

    def _save(self, record: AnyRecord) -> None:
        framed = frame(record)
        with self._lock:
            replay(self._groups, record)
            self._pending += framed
            self.position += len(framed)

    # -- the file --------------------------------------------------------------------------------

    def sync(self) -> int:
        """Makes everything saved before the call durable and returns the position reached.

        Blocking. Raises StorageFailed on a disk error. After a failed fsync the failure is
        permanent and the node must stop; after other errors (a full disk) the call may be retried.
        """
        with self._slow:
            self._refuse_if_failed()
            if self.needs_sync:
                if self._file_end > self._checkpoint_due_bytes:
                    self._checkpoint()
                else:
                    self._append()
                self.syncs_total += 1
            return self.synced_position

    def close(self, *, clean: bool = True) -> None:
        """Closes the file. With `clean`, first writes everything that is pending, hints
        included."""
        try:
            if clean and self._failure is None:
                with self._lock:
                    self._take_hints()
                self.sync()
        finally:
            self._files.forget(self._file)

    def _take_hints(self) -> None:
        """Queues the hints. Call with `_lock` held."""
        for group, index in self._hints.items():
            framed = frame(CommitSaved(group, index))
            self._pending += framed
            self.position += len(framed)
        self._hints.clear()

    def _append(self) -> None:
        with self._lock:
            self._take_hints()
            data, self._pending = self._pending, bytearray()
            position = self.position
        try:
            self._files.pwrite(self._file, data, self._file_end)
        except OSError as error:
            self._put_back(data)
            raise StorageFailed(f"cannot write {self._file.path}: {error}") from error
        self._sync_file(self._file)
        self._file_end += len(data)
        self.synced_position = position
        self._mark()

    def _put_back(self, data: bytearray) -> None:
        """Re-queues data that could not be written, before anything saved since. Uses a new buffer:
        the exception's traceback may hold a view of the old one, which then cannot grow."""
        with self._lock:
            self._pending = data + self._pending

    def _mark(self) -> None:
        """Writes the durable position into the header. This write need not be durable itself."""
        try:
            self._files.pwrite(self._file, encode_header(self._file_end), 0)
        except OSError as error:
            _log.warning("cannot mark %s: %s", self._file.path, error)

    def _checkpoint(self) -> None:
        """Replaces the file by the current facts, pending ones included."""
        with self._lock:
            groups = [(group, facts.copy()) for group, facts in self._groups.items()]
            data, self._pending = self._pending, bytearray()
            hints, self._hints = self._hints, {}
            position = self.position
        try:
            self._replace_file(self._encoded(groups))
        except OSError as error:
            # The old file is intact and can still grow, which is better than stopping on a full
            # disk.
            _log.warning("cannot replace %s: %s", self._file.path, error)
            self._checkpoint_due_bytes = self._file_end * 2
            self._hints = hints | self._hints
            self._put_back(data)
            self._append()
            return
        self._checkpoint_due_bytes = max(
            _CHECKPOINT_SIZE_BYTES_MIN, _CHECKPOINT_GROWTH * self._file_end
        )
        self.synced_position = position

    def _encoded(self, groups: Iterable[tuple[GroupId, GroupFacts]]) -> bytes:
        body = b"".join(frame(record) for pair in groups for record in records_of(*pair))
        return encode_header(HEADER_SIZE_BYTES + len(body)) + body

    def _replace_file(self, content: bytes) -> None:
        """Raises OSError; the old file is intact then."""
        path = self._file.path
        fresh = OpenFile(path + _TEMPORARY_SUFFIX)
        try:
            self._files.truncate(fresh, 0)
            self._files.pwrite(fresh, content, 0)
            self._sync_file(fresh)
        finally:
            self._files.forget(fresh)
        self._files.calls.rename(fresh.path, path)
        self._files.forget(self._file)
        self._file = OpenFile(path)
        try:
            self._files.calls.sync_directory(os.path.dirname(path))
        except OSError as error:
            raise self._fail(f"fsync of the directory of {path} failed: {error}") from error
        self._file_end = len(content)

    def _sync_file(self, file: OpenFile) -> None:
        try:
            self._files.sync(file)
        except OSError as error:
            raise self._fail(f"fsync of {file.path} failed: {error}") from error

    def _fail(self, reason: str) -> StorageFailed:
        """Stops all writing: after a failed fsync the file's content is unknown (fsyncgate)."""
        self._failure = reason
        _log.critical("%s; the node must stop", reason)
        return StorageFailed(reason)

    def _refuse_if_failed(self) -> None:
        if self._failure is not None:
            raise StorageFailed(f"the raft journal no longer accepts writes: {self._failure}")

    # -- opening ---------------------------------------------------------------------------------

    def _begin(self, directory: str) -> None:
        """Creates a journal without groups."""
        calls = self._files.calls
        known = directory
        while not calls.exists(known):
            known = os.path.dirname(known)
        if known != directory:
            calls.make_directories(directory)
        self._replace_file(self._encoded(()))
        while directory != known:
            directory = os.path.dirname(directory)
            calls.sync_directory(directory)

    def _recover(self) -> None:
        """Replays the file, cuts a torn tail, and makes the rest durable."""
        path = self._file.path
        data = self._files.pread(self._file, self._files.size_bytes(self._file), 0)
        synced_end = decode_header(data[:HEADER_SIZE_BYTES])
        end = HEADER_SIZE_BYTES
        try:
            for record, position in unframe(data, HEADER_SIZE_BYTES):
                replay(self._groups, record)
                end = position
        except CorruptMessage as error:
            reason, position = error.args
            if synced_end is None or position < synced_end:
                raise CorruptMessage(
                    f"{path} is damaged at position {position}: {reason}"
                ) from None
            _log.warning(
                "%s: cut %d bytes of a torn tail at position %d: %s",
                *(path, len(data) - position, position, reason),
            )
            self._files.truncate(self._file, position)
        if end < (synced_end or 0):
            raise CorruptMessage(f"{path} is damaged at position {end}: the file ends there")
        if synced_end is None and end == HEADER_SIZE_BYTES:
            raise CorruptMessage(f"{path} is damaged at position 0: it is not a raft journal")
        self._file_end = end
        # Written again: if the previous process died after a failed fsync, these bytes may be only
        # in the page cache, and another fsync would report success without writing them.
        start = min(synced_end or HEADER_SIZE_BYTES, end)
        self._files.pwrite(self._file, data[start:end], start)
        self._sync_file(self._file)
        # A crash may have followed the rename before the rename was durable.
        self._files.calls.sync_directory(os.path.dirname(path))
        self._mark()
