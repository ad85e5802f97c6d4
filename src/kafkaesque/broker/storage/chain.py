"""The ordered segments of a log: find an offset, append at the end, read from the middle, expire.

The chain tracks what changed since the last sync. Readable offsets, leader epochs and syncing are
handled by `Log`. The log's lock guards everything here except `read_in`.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from builtins import memoryview  # mypyc looks up a NamedTuple's types among the module's names
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

from kafkaesque.broker.storage.config import LogConfig
from kafkaesque.broker.storage.index import IndexDamaged
from kafkaesque.broker.storage.open_files import OpenFiles
from kafkaesque.broker.storage.rules.segment_facts import SegmentFacts
from kafkaesque.broker.storage.scanning import ANY, cut_batches
from kafkaesque.broker.storage.segment import Segment
from kafkaesque.model.errors import CorruptMessage, StorageFailed
from kafkaesque.model.ids import Offset, TimestampMs
from kafkaesque.records.batch import BatchHeader

_log = logging.getLogger("kafkaesque.broker.storage")

_READ_SIZE_BYTES_MIN: Final = 4096
_base_offset = attrgetter("base_offset")


class ReadResult(NamedTuple):
    """Whole batches as stored in the log, each with a verified checksum."""

    records: memoryview
    next_offset: Offset
    """Where to continue: after the last batch, or the requested offset if there is none."""


class ReadRange(NamedTuple):
    """The limits of one read."""

    offset: Offset
    limit_offset: Offset
    max_bytes: int
    at_least_one: bool
    epoch: int = ANY
    """The leader epoch that every batch must have."""
    is_whole: bool = False
    """Each batch begins where the previous one ends: this part was never cleaned."""


class SegmentChain:
    """At least one segment; the last one is the active one."""

    __slots__ = (
        "_directory",
        "_files",
        "_is_rejecting",
        "_reported",
        "config",
        "has_new_name",
        "is_saved",
        "segments",
        "unsynced",
    )

    def __init__(
        self,
        directory: str,
        config: LogConfig,
        files: OpenFiles,
        segments: list[Segment],
        *,
        has_new_name: bool,
        is_saved: bool,
    ) -> None:
        self._directory = directory
        self._files = files
        self._reported: set[str] | None = None
        self._is_rejecting = False
        self.config = config
        self.segments = segments
        self.unsynced = [segment for segment in segments if not segment.is_synced]
        self.has_new_name = has_new_name
        """A file was created whose directory entry is not durable yet."""
        self.is_saved = is_saved
        """The structure on disk describes exactly these segments."""

    @property
    def active(self) -> Segment:
        return self.segments[-1]

    def append(
        self, buffer: bytes | bytearray | memoryview, header: BatchHeader, now_ms: int
    ) -> Offset:
        """Writes the batch at the end, rolling to a new segment if needed.

        Returns the base offset of the segment that holds it. Raises StorageFailed.
        """
        segment = self.segments[-1]
        files, config = self._files, self.config
        try:
            if not segment.append(files, buffer, header, now_ms, config):
                segment = self.roll(header.base_offset)
                segment.append(files, buffer, header, now_ms, config)
        except StorageFailed as error:
            self._log_rejection(error)
            raise
        if self._is_rejecting:
            self._is_rejecting = False
            _log.warning("%s accepts records again", self._directory)
        if segment.is_synced:
            self.note_unsynced(segment)
            if segment.size_bytes == header.size_bytes:
                self.has_new_name = True
                self.is_saved &= segment.base_offset == 0
        return segment.base_offset

    def _log_rejection(self, error: StorageFailed) -> None:
        """Logs the first rejection only, not every retry of a producer on a full disk."""
        if not self._is_rejecting:
            self._is_rejecting = True
            _log.error("%s: records are rejected until writing works again", error)

    def roll(self, base_offset: Offset) -> Segment:
        """Starts a new segment; replaces the active one if it is empty. Raises StorageFailed."""
        if self.active.size_bytes == 0:
            self.segments.pop().unlink(self._files)
        else:
            self.trim()
            self.active.unpin(self._files)
        segment = Segment(self._directory, SegmentFacts(base_offset))
        self.segments.append(segment)
        self.is_saved = False
        return segment

    def trim(self) -> None:
        """Cuts preallocated zeros off the active segment, before it is closed. Raises StorageFailed.

        The cut must be synced before any later segment: recovery takes a file that ends in zeros
        for torn and discards everything after it.
        """
        segment = self.active
        try:
            is_cut = segment.trim(self._files)
        except OSError as error:
            raise StorageFailed(f"cannot cut {segment.file.path}: {error}") from error
        if is_cut and segment.is_synced:
            self.note_unsynced(segment)

    def note_unsynced(self, segment: Segment) -> None:
        segment.is_synced = False
        self.unsynced.append(segment)

    def number_of(self, offset: Offset) -> int:
        """The number of the segment that contains `offset`, or would contain it."""
        if offset >= self.segments[-1].base_offset:
            return len(self.segments) - 1
        return max(0, bisect_right(self.segments, offset, key=_base_offset) - 1)

    def place_of(self, segment: Segment, offset: Offset) -> tuple[int, int]:
        """Where a scan for `offset` can start: the offset of a batch and its position.

        Rebuilds a damaged index.
        """
        try:
            return segment.place_of(self._files, offset)
        except IndexDamaged as damage:
            self._rebuild(segment, damage)
            return segment.place_of(self._files, offset)

    def position_of_time(self, segment: Segment, timestamp: TimestampMs) -> int:
        """Where a scan for `timestamp` can start. Rebuilds a damaged index."""
        try:
            return segment.position_of_time(self._files, timestamp)
        except IndexDamaged as damage:
            self._rebuild(segment, damage)
            return segment.position_of_time(self._files, timestamp)

    def _rebuild(self, segment: Segment, damage: IndexDamaged) -> None:
        _log.warning("rebuilding the index of %s: %s", segment.file.path, damage)
        segment.rebuild(self._files, self.config.index_interval_bytes)
        self.is_saved = False
        if segment.is_synced:
            self.note_unsynced(segment)

    def read_in(
        self, segment: Segment, place: tuple[int, int], end: int, wanted: ReadRange
    ) -> tuple[memoryview, Offset, int] | None:
        """Reads the batches that `wanted` selects between `place` and `end` of a segment.

        Returns whole batches and where to continue, by offset and by position; None if the segment
        holds nothing of interest. Needs no lock: the bytes before `end` do not change.
        """
        start_offset, position = place
        offset, limit_offset, max_bytes, at_least_one, epoch, is_whole = wanted
        size_bytes = max(max_bytes, _READ_SIZE_BYTES_MIN)
        if start_offset != offset:
            size_bytes += self.config.index_interval_bytes
        if not is_whole:
            start_offset = ANY
        while position < end:
            size_bytes = min(size_bytes, end - position)
            chunk = self._files.pread(segment.file, size_bytes, position)
            start, stop, next_offset, missing_bytes, damage, start_offset = cut_batches(
                chunk, offset, limit_offset, max_bytes, at_least_one, epoch, start_offset
            )
            if stop > start:
                return memoryview(chunk)[start:stop], next_offset, position + stop
            if damage is not None:
                raise self._damaged(segment, position + damage.position, damage.reason)
            if missing_bytes == 0:
                return memoryview(b""), offset, position
            position += start
            if len(chunk) < size_bytes or missing_bytes > end - position > 0:
                raise self._damaged(segment, position, "the file ends before its last batch does")
            size_bytes = max(size_bytes, missing_bytes)
        return None

    def headers(self, segment: Segment, position: int) -> Iterator[tuple[int, BatchHeader]]:
        """Position and header of the segment's batches from `position` on."""
        return segment.headers(self._files, position)

    def cut(self, number: int, position: int) -> None:
        """Drops everything from `position` of segment `number` on. Raises OSError.

        Works from the end of the log backwards, so that a crash midway leaves no gap.
        """
        segment = self.segments[number]
        for doomed in reversed(self.segments[number + 1 :]):
            doomed.unlink(self._files)
        del self.segments[number + 1 :]
        self.unsynced = [s for s in self.unsynced if s in self.segments and s is not segment]
        self.note_unsynced(segment)
        self.is_saved = False
        segment.cut(self._files, position)
        segment.rebuild(self._files, self.config.index_interval_bytes)

    def reset(self, base_offset: Offset) -> None:
        """Deletes all segments, the last one first, and starts an empty one at `base_offset`."""
        for doomed in reversed(self.segments):
            self.has_new_name |= doomed.size_bytes > 0
            doomed.unlink(self._files)
        self.segments = [Segment(self._directory, SegmentFacts(base_offset))]
        self.unsynced = []

    def take_before(self, offset: Offset) -> list[Segment]:
        """Removes and returns the segments that end at or before `offset`; never the active one."""
        count = max(0, bisect_right(self.segments, offset, key=_base_offset) - 1)
        taken = self.segments[:count]
        del self.segments[:count]
        self.unsynced = [segment for segment in self.unsynced if segment not in taken]
        self.is_saved = False
        return taken

    def replace(self, number: int, count: int, cleaned: SegmentFacts) -> None:
        """Replaces `count` segments from `number` on by a cleaned one whose file is in place."""
        taken = self.segments[number : number + count]
        self.segments[number : number + count] = [Segment(self._directory, cleaned)]
        self.unsynced = [segment for segment in self.unsynced if segment not in taken]
        self.is_saved = False

    def forget(self) -> None:
        """Releases the descriptors."""
        for segment in self.segments:
            segment.forget(self._files)

    def _damaged(self, segment: Segment, position: int, reason: str) -> CorruptMessage:
        """The error for damage at `position`; logs each place once."""
        error = segment.damaged(position, reason)
        if self._reported is None:
            self._reported = set()
        if error.args[0] not in self._reported:
            self._reported.add(error.args[0])
            _log.error("%s", error)
        return error


def choose_expired(
    segments: Sequence[SegmentFacts],
    log_end_offset: Offset,
    committed_offset: Offset,
    now_ms: int,
    config: LogConfig,
) -> int:
    """Returns how many of the oldest segments retention may delete, by age and by size.

    `segments` ascend; the last one is the active one and ends at `log_end_offset`. All of them may
    expire, except an empty active segment. A segment that ends after `committed_offset` is kept. As
    in Kafka's UnifiedLog, a segment is as old as its youngest record, so a timestamp in the future
    keeps its segment and all later ones. Records without timestamps are as old as their segment.
    """
    size_bytes = sum(segment.size_bytes for segment in segments)
    ends = [segment.base_offset for segment in segments[1:]] + [log_end_offset]
    count = 0
    for segment, end_offset in zip(segments, ends, strict=True):
        is_empty_active = segment is segments[-1] and segment.size_bytes == 0
        if is_empty_active or end_offset > committed_offset:
            break
        remaining_bytes = size_bytes - segment.size_bytes
        youngest = max(segment.max_timestamp, segment.first_timestamp)
        is_old = 0 <= config.retention_ms < now_ms - youngest
        is_surplus = 0 <= config.retention_bytes <= remaining_bytes
        if not (is_old or is_surplus):
            break
        size_bytes = remaining_bytes
        count += 1
    return count
