"""The ordered segments of a log: which one has an offset, writing at the end, reading from the middle.

Knows what changed since it was last made durable, and nothing of offsets that may be read, of
epochs or of syncing. The log's lock guards all of it, except `read_in`, which says so.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Iterator
from operator import attrgetter
from typing import Final, NamedTuple

from kafkaesque.broker.storage.config import LogConfig
from kafkaesque.broker.storage.index import IndexDamaged
from kafkaesque.broker.storage.open_files import OpenFiles
from kafkaesque.broker.storage.scanning import ANY, cut_batches
from kafkaesque.broker.storage.segment import Segment, SegmentFacts
from kafkaesque.model.errors import CorruptMessage, StorageFailed
from kafkaesque.model.ids import Offset, TimestampMs
from kafkaesque.records.batch import BatchHeader

_log = logging.getLogger("kafkaesque.broker.storage")

_READ_SIZE_BYTES_MIN: Final = 4096
_base_offset = attrgetter("base_offset")


class ReadResult(NamedTuple):
    """Whole batches as they lie in the log, each having passed its checksum."""

    records: memoryview
    next_offset: Offset
    """Where to read on: behind the last batch, or the offset asked for if there is none."""


class ReadRange(NamedTuple):
    """What a reader wants."""

    offset: Offset
    limit_offset: Offset
    max_bytes: int
    at_least_one: bool
    epoch: int = ANY
    """Of all that is wanted."""
    is_whole: bool = False
    """Each batch begins where the one before it ends: no cleaner was here."""


class SegmentChain:
    """At least one segment; the last one is the active one."""

    __slots__ = (
        "_directory",
        "_files",
        "_is_refusing",
        "_reported",
        "config",
        "has_new_name",
        "is_saved",
        "segments",
        "unsynced",
    )

    def __init__(
        self, directory: str, config: LogConfig, files: OpenFiles, segments: list[Segment]
    ) -> None:
        self._directory = directory
        self._files = files
        self._reported: set[str] | None = None
        self._is_refusing = False
        self.config = config
        self.segments = segments
        self.unsynced = [segment for segment in segments if not segment.is_synced]
        self.has_new_name = False
        """A file was made whose name is not durable yet."""
        self.is_saved = True
        """The segments are those that the structure on disk tells of."""

    @property
    def active(self) -> Segment:
        return self.segments[-1]

    def append(
        self, buffer: bytes | bytearray | memoryview, header: BatchHeader, now_ms: int
    ) -> Offset:
        """Write the batch at the end, in a new segment if it is time. The first offset of the
        segment that has it. Raises StorageFailed."""
        segment = self.segments[-1]
        files, config = self._files, self.config
        try:
            if not segment.append(files, buffer, header, now_ms, config):
                segment = self.roll(header.base_offset)
                segment.append(files, buffer, header, now_ms, config)
        except StorageFailed as error:
            self._complain(error)
            raise
        if self._is_refusing:
            self._is_refusing = False
            _log.warning("%s takes records again", self._directory)
        if segment.is_synced:
            self.note_unsynced(segment)
            if segment.size_bytes == header.size_bytes:
                self.has_new_name = True
                self.is_saved &= segment.base_offset == 0
        return segment.base_offset

    def _complain(self, error: StorageFailed) -> None:
        """Say so once, not for every producer that tries again on a full disk."""
        if not self._is_refusing:
            self._is_refusing = True
            _log.error("%s: records are refused until writing works again", error)

    def roll(self, base_offset: Offset) -> Segment:
        """Begin a new segment. An empty one is replaced instead of closed. Raises StorageFailed."""
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
        """Nothing is appended to the active segment for now, or ever. Raises StorageFailed.

        To be synced before what comes behind it: to a recovery a file that ends in zeros has lost
        something, and all behind it is void.
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
        """Which segment has `offset`, or would have."""
        if offset >= self.segments[-1].base_offset:
            return len(self.segments) - 1
        return max(0, bisect_right(self.segments, offset, key=_base_offset) - 1)

    def place_of(self, segment: Segment, offset: Offset) -> tuple[int, int]:
        """Where a walk towards `offset` may begin: which offset, and at which position. A damaged
        index is rebuilt first."""
        try:
            return segment.place_of(self._files, offset)
        except IndexDamaged as damage:
            self._rebuild(segment, damage)
            return segment.place_of(self._files, offset)

    def position_of_time(self, segment: Segment, timestamp: TimestampMs) -> int:
        """Where a walk towards `timestamp` may begin. A damaged index is rebuilt first."""
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
        """What `wanted` gets from `place` to `end`: whole batches, and where to read on, by offset and
        by position; None if there is nothing.

        Needs no lock: what lies before `end` does not change.
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
        """Drop everything from `position` of segment `number` on. Raises OSError.

        From the end on, so that a crash on the way leaves no gap.
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
        """Delete all segments, from the end on, and begin at `base_offset`."""
        for doomed in reversed(self.segments):
            self.has_new_name |= doomed.size_bytes > 0
            doomed.unlink(self._files)
        self.segments = [Segment(self._directory, SegmentFacts(base_offset))]
        self.unsynced = []

    def take_before(self, offset: Offset) -> list[Segment]:
        """Take out the segments that end at or before `offset`; never the active one."""
        count = max(0, bisect_right(self.segments, offset, key=_base_offset) - 1)
        taken = self.segments[:count]
        del self.segments[:count]
        self.unsynced = [segment for segment in self.unsynced if segment not in taken]
        self.is_saved = False
        return taken

    def replace(self, number: int, count: int, cleaned: SegmentFacts) -> None:
        """A cleaned segment, whose file is in place, stands for `count` segments from `number` on."""
        taken = self.segments[number : number + count]
        self.segments[number : number + count] = [Segment(self._directory, cleaned)]
        self.unsynced = [segment for segment in self.unsynced if segment not in taken]
        self.is_saved = False

    def forget(self) -> None:
        """Give back the descriptors."""
        for segment in self.segments:
            segment.forget(self._files)

    def _damaged(self, segment: Segment, position: int, reason: str) -> CorruptMessage:
        """The error for a damaged place, which is logged once."""
        error = segment.damaged(position, reason)
        if self._reported is None:
            self._reported = set()
        if error.args[0] not in self._reported:
            self._reported.add(error.args[0])
            _log.error("%s", error)
        return error
