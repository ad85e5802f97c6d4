"""One file of batches with its sparse index, named by the first offset it may hold.

A segment finds, appends and reads batches in its file. `Log` decides what may be read and what is
durable. Not thread-safe: the log's lock guards every change.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import lru_cache, partial
from typing import Final

from kafkaesque.broker.storage.config import POSITION_MAX, LogConfig
from kafkaesque.broker.storage.index import ENTRY_SIZE_BYTES, SparseIndex
from kafkaesque.broker.storage.open_files import OpenFile, OpenFiles
from kafkaesque.broker.storage.rules.segment_facts import SegmentFacts
from kafkaesque.broker.storage.scanning import Read, iter_headers
from kafkaesque.model.errors import CorruptMessage, StorageFailed
from kafkaesque.model.ids import TimestampMs
from kafkaesque.records.batch import BatchHeader, read_header, verify_crc

_log = logging.getLogger("kafkaesque.broker.storage")

OFFSET_DELTA_MAX: Final = 2**31 - 1
"""Index entries store offsets relative to the segment in 32 bits; Kafka rolls at the same distance."""
_COPY_SIZE_BYTES: Final = 1024 * 1024
RECENT_MAX: Final = 128
"""Cached batch positions: enough for every consumer near the end of one partition."""
_zeros = lru_cache(maxsize=4)(bytes)
"""`_zeros(n)` returns n zero bytes."""


class Segment:
    """The batches from `base_offset` up to the next segment."""

    __slots__ = (
        "_indexed_position",
        "_needs_repair",
        "_pinned_fd",
        "_preallocated_end",
        "_recent",
        "_unsynced_position",
        "base_offset",
        "file",
        "first_timestamp",
        "index",
        "is_synced",
        "max_timestamp",
        "max_timestamp_position",
        "opened_size_bytes",
        "size_bytes",
    )

    def __init__(self, directory: str, facts: SegmentFacts) -> None:
        self.base_offset = facts.base_offset
        self.size_bytes = facts.size_bytes
        self.opened_size_bytes = facts.size_bytes
        """Everything after this position was written by this process."""
        self.first_timestamp = facts.first_timestamp
        self.max_timestamp = facts.max_timestamp
        self.max_timestamp_position = facts.max_timestamp_position
        self.file = OpenFile(f"{directory}/{facts.base_offset:020d}.log")
        index_file = OpenFile(f"{directory}/{facts.base_offset:020d}.index")
        self.index = SparseIndex(index_file, facts.index_count)
        self.is_synced = True
        self._indexed_position = facts.size_bytes
        self._recent: dict[int, int] | None = None
        self._needs_repair = False
        self._pinned_fd = -1
        """The descriptor of `file` while batches are appended to it; -1 otherwise."""
        self._preallocated_end = 0
        """If greater than `size_bytes`, the file is preallocated with zeros up to here."""
        self._unsynced_position = 0
        """Position of the first batch appended since the last sync."""

    def facts(self) -> SegmentFacts:
        return SegmentFacts(
            self.base_offset,
            self.size_bytes,
            self.first_timestamp,
            self.max_timestamp,
            self.max_timestamp_position,
            self.index.count,
        )

    def append(
        self,
        files: OpenFiles,
        buffer: bytes | bytearray | memoryview,
        header: BatchHeader,
        now_ms: int,
        config: LogConfig,
    ) -> bool:
        """Writes the batch at the end, or raises StorageFailed and leaves no trace of it.

        Returns False and does nothing if the batch needs a new segment (Kafka's
        LogSegment.shouldRoll). An empty segment that starts at the batch always accepts it.
        """
        position, base_offset = self.size_bytes, header.base_offset
        if base_offset + header.last_offset_delta - self.base_offset > OFFSET_DELTA_MAX:
            return False
        if position:
            end_position, timestamp = position + header.size_bytes, header.max_timestamp
            if (
                end_position > config.segment_bytes
                or end_position > POSITION_MAX
                or (timestamp if timestamp >= 0 else now_ms) - self.first_timestamp
                > config.segment_ms
                or (self.index.count + 1) * ENTRY_SIZE_BYTES > config.segment_index_bytes
            ):
                return False
        if self._needs_repair:
            self._repair(files)
        try:
            fd = self._pinned_fd
            if fd < 0:
                fd = self._pinned_fd = files.pin(self.file)
            if self.is_synced:
                self._unsynced_position = position
            elif (
                position + header.size_bytes > self._preallocated_end
                and position - self._unsynced_position >= config.preallocate_after_bytes
                and header.size_bytes <= config.preallocate_bytes // 2
            ):
                self._preallocate(files, position + header.size_bytes, config)
            if fd < 0 or files.calls.pwrite(fd, buffer, position) != len(buffer):
                # No descriptor to pin, or a short write: write all of it through OpenFiles.
                files.pwrite(self.file, buffer, position)
        except OSError as error:
            raise self._roll_back(files, error) from error
        self.note_batch(header, now_ms, config.index_interval_bytes)
        recent = self._recent
        if recent is None or len(recent) >= RECENT_MAX:
            self.remember(base_offset, position)
        else:
            recent[base_offset] = position
        return True

    def _roll_back(self, files: OpenFiles, error: OSError) -> StorageFailed:
        """Removes what a failed write may have left, now or before the next append."""
        self._needs_repair = True
        try:
            self._repair(files)
        except StorageFailed as repair_error:
            _log.error("%s", repair_error)
        return StorageFailed(f"cannot write {self.file.path}: {error}")

    def _preallocate(self, files: OpenFiles, position: int, config: LogConfig) -> None:
        """Writes zeros ahead of `position`, aligned, for the batches to come.

        Appends start anywhere in a page, so the kernel allocates their pages one by one. A large
        aligned write gets large pages, which are cheap to overwrite. Together the two writes cost
        half of a plain append of 16 kB (7 instead of 14 microseconds, ext4). Large batches get large
        pages anyway, and a file that is synced all the time would be written twice.
        """
        size_bytes = config.preallocate_bytes
        start = -(-position // size_bytes) * size_bytes
        if start + size_bytes > config.segment_bytes:
            return
        self._preallocated_end = start + size_bytes
        try:
            files.pwrite(self.file, _zeros(size_bytes), start)
        except OSError:  # the disk is full: leave the space to the batches
            self.trim(files)
            self._preallocated_end = POSITION_MAX

    def trim(self, files: OpenFiles) -> bool:
        """Cuts the file at the end of its last batch; True if it was longer. Raises OSError."""
        is_longer = self._preallocated_end > self.size_bytes
        if is_longer:
            files.truncate(self.file, self.size_bytes)
        self._preallocated_end = 0
        return is_longer

    def unpin(self, files: OpenFiles) -> None:
        """Releases the pinned descriptor when nothing is appended for now."""
        if self._pinned_fd >= 0:
            self._pinned_fd = -1
            files.unpin(self.file)

    def note_batch(self, header: BatchHeader, now_ms: int, interval_bytes: int) -> None:
        """Updates the metadata and the index for a batch written at the end of the file."""
        position, timestamp = self.size_bytes, header.max_timestamp
        if position == 0:
            self.first_timestamp = timestamp if timestamp >= 0 else TimestampMs(now_ms)
            self._indexed_position = 0
        elif position - self._indexed_position >= interval_bytes:
            delta = header.base_offset - self.base_offset
            self.index.append(delta, position, self.max_timestamp)
            self._indexed_position = position
        if timestamp > self.max_timestamp and header.record_count:
            self.max_timestamp = timestamp
            self.max_timestamp_position = position
        self.size_bytes = position + header.size_bytes

    def remember(self, offset: int, position: int) -> None:
        """Caches the position of the batch that begins at `offset`, for the next reader."""
        recent = self._recent
        if recent is None:
            self._recent = {offset: position}
            return
        if len(recent) >= RECENT_MAX:
            recent.clear()
        recent[offset] = position

    def position_in_memory(self, offset: int) -> int | None:
        """Where a scan for `offset` can start; None if that needs the index file."""
        if self._recent is not None and offset in self._recent:
            return self._recent[offset]
        found = self.index.floor_offset_in_memory(max(0, offset - self.base_offset))
        return None if found is None else found[1]

    def place_of(self, files: OpenFiles, offset: int) -> tuple[int, int]:
        """Where a scan for `offset` can start: the offset of a batch at or before it, and its
        position. Raises IndexDamaged."""
        if self._recent is not None and offset in self._recent:
            return offset, self._recent[offset]
        delta, position, _ = self.index.floor_offset(files, max(0, offset - self.base_offset))
        return self.base_offset + delta, position

    def position_of_time(self, files: OpenFiles, timestamp: int) -> int:
        """Where a scan for the first record at or after `timestamp` can start.

        Raises IndexDamaged.
        """
        return self.index.floor_time(files, timestamp)[1]

    def headers(self, files: OpenFiles, position: int) -> Iterator[tuple[int, BatchHeader]]:
        """Position and header of each batch from `position` on. CorruptMessage names the file."""
        try:
            yield from iter_headers(self.reader(files), position, self.size_bytes)
        except CorruptMessage as error:
            raise self.damaged(error.args[1], error.args[0]) from None

    def read_batch(self, files: OpenFiles, position: int, size_bytes: int) -> bytes:
        """Reads one whole batch and verifies its checksum."""
        data = self.reader(files)(size_bytes, position)
        try:
            verify_crc(data, read_header(data))
        except CorruptMessage as error:
            raise self.damaged(position, error.args[0]) from None
        return data

    def rewrite_in_place(self, files: OpenFiles, position: int) -> None:
        """Rewrites the bytes from `position` on with themselves, so that the next sync writes them.

        Raises OSError.
        """
        while position < self.size_bytes:
            size_bytes = min(_COPY_SIZE_BYTES, self.size_bytes - position)
            files.pwrite(self.file, files.pread(self.file, size_bytes, position), position)
            position += size_bytes

    def reader(self, files: OpenFiles) -> Read:
        return partial(files.pread, self.file)

    def damaged(self, position: int, reason: str) -> CorruptMessage:
        return CorruptMessage(f"{self.file.path} is damaged at position {position}: {reason}")

    def rebuild(self, files: OpenFiles, interval_bytes: int) -> None:
        """Recomputes the metadata and the index of [0, size_bytes) from the batch headers.

        Batches after damage stay unindexed; a scan finds them if it can get past the damage.
        """
        directory = self.file.path.rpartition("/")[0]
        fresh = Segment(directory, SegmentFacts(self.base_offset))
        modified_ms = files.modified_ms(self.file)
        try:
            end_offset = self.base_offset
            for position, header in iter_headers(self.reader(files), 0, self.size_bytes):
                if not end_offset <= header.base_offset <= self.base_offset + OFFSET_DELTA_MAX:
                    raise CorruptMessage(f"offset {header.base_offset} is out of order", position)
                fresh.note_batch(header, modified_ms, interval_bytes)
                end_offset = header.next_offset
        except CorruptMessage as error:
            _log.error("%s", self.damaged(error.args[1], error.args[0]))
        self.first_timestamp = fresh.first_timestamp
        self.max_timestamp = fresh.max_timestamp
        self.max_timestamp_position = fresh.max_timestamp_position
        self._indexed_position = fresh._indexed_position
        self._recent = None
        if files.size_bytes(self.index.file) > 0:
            files.truncate(self.index.file, 0)
            # Otherwise a crash could bring back valid entries of batches that no longer exist.
            files.sync(self.index.file)
        fresh.index.file = self.index.file
        self.index = fresh.index

    def cut(self, files: OpenFiles, position: int) -> None:
        """Drops every byte from `position` on. Call `rebuild` afterwards."""
        files.truncate(self.file, position)
        self._preallocated_end = 0
        self.size_bytes = position
        self.opened_size_bytes = min(self.opened_size_bytes, position)
        self._recent = None
        self._needs_repair = False

    def forget(self, files: OpenFiles) -> None:
        """Releases the descriptors."""
        self.unpin(files)
        files.forget(self.file)
        files.forget(self.index.file)

    def retire(self, files: OpenFiles) -> None:
        """Marks the files as replaced: another segment is about to get their names."""
        files.retire(self.file)
        files.retire(self.index.file)

    def unlink(self, files: OpenFiles) -> None:
        """Deletes the files; a reader in another thread may finish with an open descriptor.

        A file that cannot be deleted is left to the next recovery.
        """
        self.unpin(files)
        for file in (self.file, self.index.file):
            files.forget(file)
            try:
                files.calls.unlink(file.path)
            except FileNotFoundError:
                pass
            except OSError as error:
                _log.warning("cannot delete %s: %s", file.path, error)

    def _repair(self, files: OpenFiles) -> None:
        """Removes what a failed write may have left; no append is accepted until this succeeds."""
        try:
            if files.size_bytes(self.file) > self.size_bytes:
                files.truncate(self.file, self.size_bytes)
            self._preallocated_end = 0
        except OSError as error:
            raise StorageFailed(f"cannot repair {self.file.path}: {error}") from error
        self._needs_repair = False
