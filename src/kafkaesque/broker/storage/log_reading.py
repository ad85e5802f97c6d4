"""What can be asked of a log without changing it: reading, finding, describing.

A segment that is replaced by a cleaned one while somebody reads it is read to its end by whoever has
it open; whoever would have to open it again finds it retired (`OpenFiles.retire`) and looks anew.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Container, Iterator
from typing import Final, TypeVar

from kafkaesque.broker.storage.chain import ReadRange, ReadResult, SegmentChain
from kafkaesque.broker.storage.durability import Durability
from kafkaesque.broker.storage.epochs import EpochStart, LeaderEpochs
from kafkaesque.broker.storage.index import IndexDamaged
from kafkaesque.broker.storage.lookup import TimestampedOffset, find_first, find_latest
from kafkaesque.broker.storage.open_files import FileRange, OpenFiles, Place
from kafkaesque.broker.storage.scanning import ANY
from kafkaesque.broker.storage.segment import Segment, SegmentFacts
from kafkaesque.model.errors import CorruptMessage, OffsetOutOfRange, StorageFailed
from kafkaesque.model.ids import LeaderEpoch, Offset, TimestampMs
from kafkaesque.records.batch import BatchHeader

_LOOKS_MAX: Final = 5
"""A segment is replaced at most once in a cleaning; more misses than this are not that."""
_JUST_WRITTEN_BYTES: Final = 1024 * 1024
"""What was written at the end of a log is in memory still: who follows it is not looked after."""
Found = TypeVar("Found")
_make_tuple = tuple.__new__
"""A NamedTuple without its own constructor, which is a function of Python."""


class LogReading:
    """The part of `Log` that its readers use. Which thread may do what, `Log` says."""

    __slots__ = (
        "_chain",
        "_directory",
        "_durability",
        "_epochs",
        "_files",
        "_lock",
        "log_end_offset",
        "log_start_offset",
    )

    _chain: SegmentChain
    _directory: str
    _durability: Durability
    _epochs: LeaderEpochs
    _files: OpenFiles
    _lock: threading.Lock
    log_end_offset: Offset
    log_start_offset: Offset

    @property
    def size_bytes(self) -> int:
        with self._lock:
            return sum(segment.size_bytes for segment in self._chain.segments)

    @property
    def segments(self) -> tuple[SegmentFacts, ...]:
        """What there is of each segment, the active one last."""
        with self._lock:
            return tuple(segment.facts() for segment in self._chain.segments)

    @property
    def modified_ms(self) -> int:
        """When the last batch was written, by the wall clock; 0 if there is none."""
        return self._files.modified_ms(self._chain.active.file)

    @property
    def active_base_offset(self) -> Offset:
        """First offset of the segment that is written to: that of the last batch if it began it."""
        return self._chain.segments[-1].base_offset

    def segment(self, base_offset: Offset) -> Segment:
        """To be read at places that the caller knows of. OffsetOutOfRange if it is gone."""
        with self._lock:
            segment = self._chain.segments[self._chain.number_of(base_offset)]
        if segment.base_offset != base_offset:
            raise OffsetOutOfRange(f"{self._directory} has no segment {base_offset}")
        return segment

    def read(
        self,
        offset: Offset,
        max_bytes: int,
        limit_offset: Offset,
        at_least_one: bool = True,
        whole_from: Offset | None = None,
    ) -> ReadResult:
        """Batches from the one with `offset` on, of one segment, none from `limit_offset` on.

        With `at_least_one` the first is taken even if it is larger than `max_bytes`. A damaged
        batch is never handed out: those before it are, and reading at it raises CorruptMessage.
        From `whole_from` on no cleaner has made gaps, so that a wrong offset or leader epoch is seen
        too, which no checksum covers; such a read ends with its epoch.
        """
        for look in range(_LOOKS_MAX):
            try:
                with self._lock:
                    if not self.log_start_offset <= offset <= self.log_end_offset:
                        self._check_range(offset)
                    limit_offset = min(limit_offset, self.log_end_offset)
                    if self._durability.failure is not None:
                        limit_offset = min(limit_offset, self._durability.synced_offset)
                    if offset >= limit_offset:
                        break
                    epoch, end_offset, is_whole = ANY, limit_offset, False
                    if whole_from is not None and offset >= whole_from:
                        epoch, end_offset = self._epochs.range_at(offset, limit_offset)
                        end_offset, is_whole = min(limit_offset, end_offset), True
                    segments = self._chain.segments[self._chain.number_of(offset) :]
                limits = (offset, end_offset, max_bytes, at_least_one, epoch, is_whole)
                return self._read_from(segments, _make_tuple(ReadRange, limits))
            except FileNotFoundError as error:
                if look == _LOOKS_MAX - 1:
                    self._check_range(offset)
                    raise self._unreadable(error) from error
            except OSError as error:
                self._check_range(offset)
                raise self._unreadable(error) from error
        return ReadResult(memoryview(b""), offset)

    def on_disk(
        self, offset: Offset, max_bytes: int, tried: Container[Place] = ()
    ) -> FileRange | None:
        """What has to be loaded before `read` does not wait for the disk; None if nothing has to.

        Told without waiting, as far as samples of the page cache tell. It may be the index first. Where
        it was `tried` nothing is asked for again: whatever became of that, the read will tell.
        """
        with self._lock:
            if not self.log_start_offset <= offset < self.log_end_offset:
                return None
            segment = self._chain.segments[self._chain.number_of(offset)]
            index = FileRange(segment.index.file, 0, segment.index.flushed_size_bytes)
            position = segment.position_in_memory(offset)
        try:
            if position is None:
                if self._has_to_be_loaded(index, tried):
                    return index
                with self._lock:
                    _, position = segment.place_of(self._files, offset)
            rest_bytes = segment.size_bytes - position
            if position >= segment.opened_size_bytes and rest_bytes <= _JUST_WRITTEN_BYTES:
                return None
            size_bytes = min(rest_bytes, max_bytes + self._chain.config.index_interval_bytes)
            batches = FileRange(segment.file, position, size_bytes)
            return batches if self._has_to_be_loaded(batches, tried) else None
        except (IndexDamaged, OSError):
            return None  # `read` sees to it, or says so

    def size_from(self, offset: Offset) -> int:
        """The size of the batches from `offset` on, found without reading from the disk: too large by
        an index interval at most, or by a part of a segment whose index is not in memory."""
        with self._lock:
            segments = self._chain.segments[self._chain.number_of(offset) :]
            position = segments[0].position_in_memory(offset) or 0
            return sum(segment.size_bytes for segment in segments) - position

    def _has_to_be_loaded(self, wanted: FileRange, tried: Container[Place]) -> bool:
        if wanted.start in tried:
            return False
        # Even to open it may have to wait.
        return wanted.file.fd < 0 or not self._files.is_in_memory(wanted)

    def _read_from(self, segments: list[Segment], wanted: ReadRange) -> ReadResult:
        chain, offset = self._chain, wanted.offset
        for segment in segments:
            if wanted.is_whole and segment.base_offset > offset:
                break
            with self._lock:
                place, end = chain.place_of(segment, offset), segment.size_bytes
            found = chain.read_in(segment, place, end, wanted)
            if found is not None:
                records, next_offset, position = found
                with self._lock:
                    segment.remember(next_offset, position)
                return _make_tuple(ReadResult, (records, next_offset))
        if wanted.is_whole and offset < self.log_end_offset:
            # A damaged length led past the batch.
            raise CorruptMessage(f"{self._directory} has no sound batch at offset {offset}")
        return ReadResult(memoryview(b""), offset)

    def headers_from(self, offset: Offset) -> Iterator[BatchHeader]:
        """The headers of all batches from the one with `offset` on, records not looked at."""
        chain = self._chain
        looks = 0
        while looks < _LOOKS_MAX:
            looks += 1
            with self._lock:
                segments = chain.segments[chain.number_of(offset) :]
            try:
                for segment in segments:
                    with self._lock:
                        _, position = chain.place_of(segment, offset)
                    for _, header in chain.headers(segment, position):
                        if header.next_offset > offset:
                            yield header
                            offset, looks = header.next_offset, 0
                return
            except FileNotFoundError as error:
                if looks == _LOOKS_MAX:
                    raise self._unreadable(error) from error
            except OSError as error:
                raise self._unreadable(error) from error

    def find_by_timestamp(self, timestamp: TimestampMs) -> TimestampedOffset | None:
        """The first record with a timestamp of at least `timestamp`."""
        return self._looking(
            lambda segments, start: find_first(
                segments, self._files, timestamp, start, self._position_of_time
            )
        )

    def max_timestamp(self) -> TimestampedOffset | None:
        """The first record that has the largest timestamp; None if no record has one."""
        return self._looking(lambda segments, start: find_latest(segments, self._files, start))

    def _looking(self, find: Callable[[list[Segment], Offset], Found]) -> Found:
        look = 0
        while True:
            with self._lock:
                start, segments = self.log_start_offset, list(self._chain.segments)
            try:
                return find(segments, start)
            except OSError as error:
                look += 1
                if look == _LOOKS_MAX or not isinstance(error, FileNotFoundError):
                    raise self._unreadable(error) from error

    def epoch_end(self, epoch: LeaderEpoch) -> EpochStart:
        """The epoch at or below `epoch` that wrote here, and the offset behind its last record.

        (NO_EPOCH, NO_OFFSET) for an epoch that this log has not heard of.
        """
        with self._lock:
            return self._epochs.end_of(epoch, self.log_end_offset)

    def epoch_at(self, offset: Offset) -> LeaderEpoch:
        """The leader epoch that wrote `offset`; NO_EPOCH if that is not known."""
        with self._lock:
            return self._epochs.at(offset)

    def _check_range(self, offset: Offset) -> None:
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRange(
                f"offset {offset} is not in [{self.log_start_offset}, {self.log_end_offset}]"
            )

    def _position_of_time(self, segment: Segment, timestamp: TimestampMs) -> int:
        with self._lock:
            return self._chain.position_of_time(segment, timestamp)

    def _unreadable(self, error: OSError) -> StorageFailed:
        return StorageFailed(f"cannot read {self._directory}: {error}")
