"""Making a log durable, and knowing up to where it is.

The order of `perform` is the safety argument: batches, then names, then structure, then the sync
point. Each file therefore only speaks of what was durable before it was written.

A failed fsync is final. The kernel may have dropped the pages and will report success the next time
(fsyncgate; Rebello et al., USENIX ATC '20), so the log takes no more records, and readers get only
what is known to be durable. A failure to write the small files is not: they lag, and recovery reads
more.
"""

from __future__ import annotations

import logging
import os
import threading
from typing import NamedTuple

from kafkaesque.broker.storage.checkpoint import (
    SYNC_POINT_NAME,
    SYNC_POINT_SIZE_BYTES,
    LogStructure,
    SyncPoint,
    encode_sync_point,
    save_structure,
)
from kafkaesque.broker.storage.open_files import OpenFile, OpenFiles
from kafkaesque.broker.storage.segment import Segment
from kafkaesque.model.errors import StorageFailed
from kafkaesque.model.ids import Offset

_log = logging.getLogger("kafkaesque.broker.storage")


class SyncWork(NamedTuple):
    """What was not durable at one moment; taken under the log's lock."""

    point: SyncPoint
    segments: list[Segment]
    structure: LogStructure | None
    """Only if it changed since it was last saved."""
    directory_levels: int
    """How many directories have new names in them: the log's own, and its parents if it is new."""


class Durability:
    """The durable end of one log. One thread at a time may `perform` or `lower`."""

    __slots__ = (
        "_directory",
        "_files",
        "_is_lagging",
        "_point_file",
        "failure",
        "file_synced_offset",
        "synced_offset",
    )

    def __init__(self, directory: str, files: OpenFiles, synced_offset: Offset) -> None:
        self.synced_offset = synced_offset
        """Everything before it is durable, if not in the files then in a journal of the node."""
        self.file_synced_offset = synced_offset
        """Of this alone the sync point speaks."""
        self.failure: str | None = None
        self._directory = directory
        self._files = files
        self._point_file = OpenFile(f"{directory}/{SYNC_POINT_NAME}")
        self._is_lagging = False

    def refuse_if_failed(self) -> None:
        if self.failure is not None:
            raise StorageFailed(f"this log takes no more records: {self.failure}")

    def perform(self, work: SyncWork, lock: threading.Lock) -> bool:
        """Make it durable and move the sync point; False if a small file could not be written."""
        self._sync_data(work)
        with lock:
            self.file_synced_offset = work.point.end_offset
            self.synced_offset = max(self.synced_offset, work.point.end_offset)
        try:
            for segment in work.segments:
                segment.index.flush(self._files, lock)
            if work.structure is not None:
                save_structure(self._directory, work.structure, self._files.calls)
            self._files.pwrite(self._point_file, encode_sync_point(work.point), 0)
        except OSError as error:
            if not self._is_lagging:
                _log.warning("%s: the next recovery will read more: %s", self._directory, error)
            self._is_lagging = True
            return False
        self._is_lagging = False
        return True

    def lower(self, point: SyncPoint) -> None:
        """Move the sync point back, durably, before what it speaks of is cut."""
        try:
            self._files.pwrite(self._point_file, encode_sync_point(point), 0)
            self._files.sync(self._point_file)
            # The file may be new: without its name recovery would guess an older, higher point.
            self._files.calls.sync_directory(self._directory)
        except OSError as error:
            raise StorageFailed(f"cannot write {self._point_file.path}: {error}") from error
        self.file_synced_offset = min(self.file_synced_offset, point.end_offset)
        self.synced_offset = min(self.synced_offset, point.end_offset)

    def note_empty(self, offset: Offset) -> None:
        """The log begins and ends at `offset`."""
        self.synced_offset = self.file_synced_offset = offset

    def unname(self, structure: LogStructure) -> None:
        """Save a structure that says nothing of segments which are about to be replaced. Raises
        OSError.

        The sync point must not speak of one of them either, so it is made durable as it is: in the
        segment that is written to.
        """
        # Written again: it may have been synced before and that failed, and then this one would lie.
        self._files.pwrite(
            self._point_file, self._files.pread(self._point_file, SYNC_POINT_SIZE_BYTES, 0), 0
        )
        self._files.sync(self._point_file)
        save_structure(self._directory, structure, self._files.calls)

    def forget(self) -> None:
        """Give back the descriptor."""
        self._files.forget(self._point_file)

    def _sync_data(self, work: SyncWork) -> None:
        for segment in work.segments:
            try:
                fd = self._files.acquire(segment.file)
            except OSError as error:
                raise StorageFailed(f"cannot open {segment.file.path}: {error}") from error
            try:
                self._files.calls.fdatasync(fd)
            except OSError as error:
                raise self.fail(f"fsync of {segment.file.path} failed: {error}") from error
            finally:
                self._files.release(segment.file)
        directory = self._directory
        for _ in range(work.directory_levels):
            try:
                self._files.calls.sync_directory(directory)
            except OSError as error:
                raise self.fail(f"fsync of {directory} failed: {error}") from error
            directory = os.path.dirname(directory)

    def fail(self, reason: str) -> StorageFailed:
        """Give up on the log: its state on disk is not known any more."""
        self.failure = reason
        _log.critical("%s; this log takes no more records until the node restarts", reason)
        return StorageFailed(reason)
