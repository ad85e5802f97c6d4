"""Makes a log durable and tracks up to which offset it is.

The order of `perform` is the safety argument: batches, then directory entries, then structure, then
the sync point. Each file therefore describes only what was durable before it was written.

A failed fsync is final. The kernel may have dropped the pages and will report success the next time
(fsyncgate; Rebello et al., USENIX ATC '20), so the log rejects all further records, and readers get
only what is known to be durable. A failure to write the small files (index, structure, sync point)
is not final: they lag, and recovery reads more.
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
    """Everything that was not durable at one moment; collected under the log's lock."""

    point: SyncPoint
    segments: list[Segment]
    structure: LogStructure | None
    """None if it has not changed since it was last saved."""
    directory_levels: int
    """How many directories have new entries: the log's own, and its parents if it is new."""


class Durability:
    """The durable end of one log. One thread at a time may `perform` or `move_back`."""

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
        """Everything before it is durable, in the log's files or in the node's sync journal."""
        self.file_synced_offset = synced_offset
        """Everything before it is durable in the log's files. The sync point covers only these."""
        self.failure: str | None = None
        self._directory = directory
        self._files = files
        self._point_file = OpenFile(f"{directory}/{SYNC_POINT_NAME}")
        self._is_lagging = False

    def raise_if_failed(self) -> None:
        if self.failure is not None:
            raise StorageFailed(f"this log rejects records after a failure: {self.failure}")

    def perform(self, work: SyncWork, lock: threading.Lock) -> bool:
        """Makes `work` durable and moves the sync point; False if a small file was not written."""
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
                _log.warning(
                    "%s: sync point not written, the next recovery reads more: %s",
                    self._directory,
                    error,
                )
            self._is_lagging = True
            return False
        self._is_lagging = False
        return True

    def move_back(self, point: SyncPoint) -> None:
        """Moves the sync point back, durably, before the batches it covers are cut."""
        try:
            self._files.pwrite(self._point_file, encode_sync_point(point), 0)
            self._files.sync(self._point_file)
            # The file may be new. Without its directory entry recovery would derive a higher point
            # from the structure.
            self._files.calls.sync_directory(self._directory)
        except OSError as error:
            raise StorageFailed(f"cannot write {self._point_file.path}: {error}") from error
        self.file_synced_offset = min(self.file_synced_offset, point.end_offset)
        self.synced_offset = min(self.synced_offset, point.end_offset)

    def reset_to(self, offset: Offset) -> None:
        """Sets both offsets for a log that is now empty at `offset`."""
        self.synced_offset = self.file_synced_offset = offset

    def save_before_swap(self, structure: LogStructure) -> None:
        """Saves a structure without the segments that are about to be replaced. Raises OSError.

        The sync point must not describe one of them either. It is in the active segment, so it is
        made durable as it is.
        """
        # Rewritten first: after an earlier failed sync, syncing alone would falsely succeed.
        self._files.pwrite(
            self._point_file, self._files.pread(self._point_file, SYNC_POINT_SIZE_BYTES, 0), 0
        )
        self._files.sync(self._point_file)
        save_structure(self._directory, structure, self._files.calls)

    def forget(self) -> None:
        """Releases the descriptor."""
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
        """Fails the log permanently: its state on disk is unknown."""
        self.failure = reason
        _log.critical("%s; this log rejects records until it is reopened", reason)
        return StorageFailed(reason)
