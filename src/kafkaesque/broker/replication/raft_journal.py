"""One file for the small facts of all Raft groups of a node, so that one fsync serves them all.

Terms and votes, entries without batches (no-ops, memberships, trims), where each log starts. What
a record means is in `journal_records`; here are the file, its syncs and its checkpoints.

`save_*` and the like change the facts at once and put a record into memory; `sync` writes what is
there and makes it durable, so nothing of it survives a crash before. A position counts the bytes
ever saved in this process, whatever file they went to: what was saved before `position` was read is
durable when `synced_position` has reached it.

The file begins with a header that says up to where it was durable when that was last written. A
record that cannot be read before that point is damage and stops the node: a vote may be lost. One
behind it was torn by a crash, and goes with all that follow.

A file that has grown far beyond the facts is replaced by a checkpoint: the facts in a new file,
synced, then renamed over the old one. Threads: `sync` may be called from any, all else belongs to
the owner's.
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
"""A checkpoint is due when the file is so many times as large as the last one."""


class RaftJournal:
    """The facts of all groups, and the file that holds them. Made by `open`."""

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

    def __init__(self, path: str, files: OpenFiles, groups: dict[GroupId, GroupFacts]) -> None:
        self._files = files
        self._file = OpenFile(path)
        self._file_end = 0
        """Everything before it is durable; only whoever holds `_slow` touches the file."""
        self._checkpoint_due_bytes = _CHECKPOINT_SIZE_BYTES_MIN
        self._groups = groups
        self._pending = bytearray()
        """Framed records that are not in the file yet."""
        self._hints: dict[GroupId, LogIndex] = {}
        """Commit indexes to be written when something else is."""
        self._failure: str | None = None
        self._lock = threading.Lock()
        """Guards the facts and what is pending, for moments."""
        self._slow = threading.Lock()
        """Held by `sync` from beginning to end; taken before `_lock`."""
        self.position = 0
        """Behind everything saved so far."""
        self.synced_position = 0
        """Everything saved before it is durable. synced_position <= position"""
        self.syncs_total = 0

    @classmethod
    def open(cls, directory: Path | str, files: OpenFiles) -> RaftJournal:
        """The journal in `directory`, both made if absent. Blocking; what it holds is durable.

        CorruptMessage names a damaged place; StorageFailed if the disk refuses.
        """
        path = f"{directory}/{FILE_NAME}"
        journal = cls(path, files, {})
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
        """What is known of the group, as it is now and will change; None if it is not here."""
        return self._groups.get(group)

    def groups(self) -> list[GroupId]:
        return sorted(self._groups)

    def starts(self) -> dict[GroupId, Offset]:
        """Where the entries of each group begin in its log."""
        return {group: facts.start.offset for group, facts in self._groups.items()}

    @property
    def failure(self) -> str | None:
        """Why nothing is ever written again; None while that may be tried."""
        return self._failure

    @property
    def needs_sync(self) -> bool:
        return self.synced_position < self.position

    # -- saving ----------------------------------------------------------------------------------

    def create(self, group: GroupId, start: LogStart) -> None:
        """A new group that begins with `start`."""
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
        """Forget the control entries from `index` on."""
        control = self._groups[group].control
        if control and control[-1].index >= index:
            self._save(ControlCut(group, index))

    def move_start(self, group: GroupId, start: LogStart) -> None:
        """Entries up to `start.index` are no longer needed."""
        self._save(StartMoved(group, start))

    def reset(self, group: GroupId, start: LogStart, *, is_pending: bool) -> None:
        """The log is replaced by `start`. With `is_pending` it holds old batches until
        `reset_done`, and whoever opens it in between has to empty it."""
        self._save(Reset(group, start, is_pending))

    def reset_done(self, group: GroupId) -> None:
        self._save(ResetDone(group))

    def save_commit(self, group: GroupId, index: LogIndex) -> None:
        """A hint for the next start: written when something else is, and worth no sync."""
        with self._lock:
            self._groups[group].commit_index = index
            self._hints[group] = index

    def save_closing(self, group: GroupId, closing: Closing) -> None:
        """How the log ends, so that after a clean stop nobody has to count."""
        self._save(Closed(group, *closing))

    def take_closing(self, group: GroupId) -> Closing | None:
        """What `save_closing` said, if nothing was said since; from now on it is void."""
        with self._lock:
            facts = self._groups[group]
            closing, facts.closing = facts.closing, None
            return closing

    def forget(self, group: GroupId) -> None:
        """The group is no longer on this node."""
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
        """Make everything saved before the call durable; the position up to which that is so.

        Blocking. StorageFailed if the disk refuses: for good after a failed fsync, and then the
        node must stop; otherwise (a full disk) it may be tried again.
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
        """Give back the descriptor; if `clean`, write down what is not yet, hints included."""
        try:
            if clean and self._failure is None:
                with self._lock:
                    self._take_hints()
                self.sync()
        finally:
            self._files.forget(self._file)

    def _take_hints(self) -> None:
        """With `_lock` held."""
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
        """What could not be written still has to be, before what came since. In a buffer of its own:
        whoever keeps the error keeps a view of the old one, which cannot grow then."""
        with self._lock:
            self._pending = data + self._pending

    def _mark(self) -> None:
        """Say in the header how far the file is durable; that this is durable can wait."""
        try:
            self._files.pwrite(self._file, encode_header(self._file_end), 0)
        except OSError as error:
            _log.warning("cannot mark %s: %s", self._file.path, error)

    def _checkpoint(self) -> None:
        """Replace the file by one with the facts as they are now, pending ones included."""
        with self._lock:
            groups = [(group, facts.copy()) for group, facts in self._groups.items()]
            data, self._pending = self._pending, bytearray()
            hints, self._hints = self._hints, {}
            position = self.position
        try:
            self._replace_file(self._encoded(groups))
        except OSError as error:
            # The old file still stands and can grow: better than to stop at a full disk.
            _log.warning("cannot replace %s: %s", self._file.path, error)
            self._checkpoint_due_bytes = self._file_end * 2
            self._hints = hints | self._hints
            self._put_back(data)
            self._append()
            return
        self.synced_position = position

    def _encoded(self, groups: Iterable[tuple[GroupId, GroupFacts]]) -> bytes:
        body = b"".join(frame(record) for pair in groups for record in records_of(*pair))
        return encode_header(HEADER_SIZE_BYTES + len(body)) + body

    def _replace_file(self, content: bytes) -> None:
        """Raises OSError, and then the old file stands."""
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
        self._checkpoint_due_bytes = max(
            _CHECKPOINT_SIZE_BYTES_MIN, _CHECKPOINT_GROWTH * len(content)
        )

    def _sync_file(self, file: OpenFile) -> None:
        try:
            self._files.sync(file)
        except OSError as error:
            raise self._fail(f"fsync of {file.path} failed: {error}") from error

    def _fail(self, reason: str) -> StorageFailed:
        """What the disk holds is not known any more (fsyncgate): never write again."""
        self._failure = reason
        _log.critical("%s; the node must stop", reason)
        return StorageFailed(reason)

    def _refuse_if_failed(self) -> None:
        if self._failure is not None:
            raise StorageFailed(f"the raft journal takes no more: {self._failure}")

    # -- opening ---------------------------------------------------------------------------------

    def _begin(self, directory: str) -> None:
        """A journal that knows of no group."""
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
        """Replay the file, cut a torn tail, and make durable what is left."""
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
        # Written again: a process that died may have seen its sync fail, and the next one would lie.
        start = min(synced_end or HEADER_SIZE_BYTES, end)
        self._files.pwrite(self._file, data[start:end], start)
        self._sync_file(self._file)
        # The file may have been renamed to this, and the process have died before that was durable.
        self._files.calls.sync_directory(os.path.dirname(path))
        self._mark()
