"""Log compaction: rewrites closed segments with only the records that are kept. Blocking.

`rules.compaction` decides which records are kept, `records.rewriting` re-encodes batches, and
`swapping` replaces the old segments by the result. A cleaning reads the segments twice: first the
dirty part, to find the newest offset of each key, then all of them. The sources are only read, so a
cleaning may run concurrently with everything else, also in another process, and may be killed at any
time.

A batch that cannot be decoded into records is kept as it is. A batch that fails its checksum ends
the cleaning (CorruptMessage): damaged data must not be rewritten.
"""

from __future__ import annotations

import logging
import struct
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final

import msgspec

from kafkaesque.broker.storage import swapping
from kafkaesque.broker.storage.index import ENTRY_SIZE_BYTES
from kafkaesque.broker.storage.open_files import OpenFile, OpenFiles
from kafkaesque.broker.storage.rules.compaction import (
    AbortedRange,
    BatchDecision,
    ProducerEnd,
    TransactionTracker,
    decide_batch,
    newest_only,
)
from kafkaesque.broker.storage.rules.segment_facts import SegmentFacts
from kafkaesque.broker.storage.segment import OFFSET_DELTA_MAX, Segment
from kafkaesque.model.errors import (
    CorruptMessage,
    InvalidRecord,
    StorageFailed,
    UnsupportedCompressionType,
)
from kafkaesque.model.ids import Offset, TimestampMs
from kafkaesque.records.batch import BatchHeader, read_header, verify_crc
from kafkaesque.records.layout import HEADER_SIZE_BYTES
from kafkaesque.records.rewriting import (
    delete_horizon_ms,
    empty_batch,
    encode_selection,
    places_of,
    select,
)

_log = logging.getLogger("kafkaesque.broker.storage")

_CHUNK_BYTES: Final = 4 * 1024 * 1024
_KEY_COST_BYTES: Final = 150
"""Memory per key in the map besides its own bytes: a dict entry, two objects, spare capacity."""
_MARKER_KEY: Final = struct.Struct(">hh")
_COMMIT: Final = 1
_NO_HORIZON: Final = -1

Throttle = Callable[[int], None]
"""Called with the number of bytes read or written; may sleep."""


class Job(msgspec.Struct, frozen=True, array_like=True):
    """One cleaning of one log, complete enough to be run by another process."""

    directory: str
    segments: tuple[SegmentFacts, ...]
    """All segments before `end_offset`, ascending; closed and durable."""
    first_dirty_offset: Offset
    end_offset: Offset
    """The base offset of the next segment."""
    now_ms: int
    delete_retention_ms: int
    token: str
    aborted: tuple[tuple[int, int, int], ...] = ()
    """AbortedRange of each aborted transaction with records before `end_offset`."""
    producers: tuple[tuple[int, int, int], ...] = ()
    """Producer id and ProducerEnd of each live producer."""
    segment_bytes: int = 1024 * 1024 * 1024
    segment_index_bytes: int = 10 * 1024 * 1024
    index_interval_bytes: int = 4096
    map_bytes_max: int = 128 * 1024 * 1024


class CleanedSegment(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """A group of segments that was cleaned, and the segment that may replace it."""

    bases: tuple[Offset, ...]
    facts: SegmentFacts | None
    """None if nothing changed."""
    read_bytes: int
    spent_aborts: tuple[Offset, ...]
    """Offsets of abort markers that were removed."""


class Finished(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """The result of a completed job."""

    cleaned_offset: Offset
    """Each key occurs once before it, as soon as all cleaned segments are in place."""
    next_horizon_ms: int


class Cleaning:
    """One run of one job."""

    def __init__(self, job: Job, files: OpenFiles, throttle: Throttle = lambda _: None) -> None:
        self._job = job
        self._files = files
        self._throttle = throttle
        self._newest: dict[bytes, int] = {}
        self._map_end = job.end_offset
        self._tracker = TransactionTracker(AbortedRange(*row) for row in job.aborted)
        self._producers = {row[0]: ProducerEnd(*row[1:]) for row in job.producers}
        self._next_horizon_ms = _NO_HORIZON
        self._spent_aborts: list[Offset] = []

    def run(self) -> Iterator[CleanedSegment]:
        """Yields each result as soon as it is durable, in order. Call `finished` after the last.

        Raises CorruptMessage for damage, StorageFailed for a disk error.
        """
        try:
            swapping.discard_cleaned(self._job.directory, self._files.calls)
            self._map_keys()
            wanted = [s for s in self._job.segments if s.base_offset < self._map_end]
            for group in group_segments(wanted, self._job):
                yield self._clean(group)
        except OSError as error:
            raise StorageFailed(f"cannot clean {self._job.directory}: {error}") from error

    def finished(self) -> Finished:
        return Finished(self._map_end, self._next_horizon_ms)

    # -- the newest of each key --------------------------------------------------------------------

    def _map_keys(self) -> None:
        """Maps the keys of the dirty part, as far as `map_bytes_max` allows."""
        job = self._job
        tracker = TransactionTracker(AbortedRange(*row) for row in job.aborted)
        cost_bytes = 0
        bases = [facts.base_offset for facts in job.segments[1:]]
        for facts, following in zip(job.segments, [*bases, job.end_offset], strict=True):
            if following <= job.first_dirty_offset:
                continue
            for header, batch in self._batches(facts):
                if header.is_control or header.record_count == 0:
                    continue
                is_aborted = tracker.is_aborted(header)
                if header.next_offset <= job.first_dirty_offset or is_aborted:
                    continue
                cost_bytes += self._map_batch(header, batch)
                if cost_bytes > job.map_bytes_max:
                    self._map_end = header.next_offset
                    return

    def _map_batch(self, header: BatchHeader, batch: memoryview) -> int:
        """Adds the batch's keys and returns the memory that they take."""
        try:
            _, places = places_of(batch, 0, header)
        except (InvalidRecord, UnsupportedCompressionType):
            return 0
        newest, base_offset = self._newest, header.base_offset
        before, key_bytes = len(newest), 0
        for place in places:
            if place.key is not None:
                newest[place.key] = base_offset + place.offset_delta
                key_bytes += len(place.key)
        added = len(newest) - before
        return added * (_KEY_COST_BYTES + key_bytes // max(1, len(places)))

    # -- rewriting ---------------------------------------------------------------------------------

    def _clean(self, group: Sequence[SegmentFacts]) -> CleanedSegment:
        output = _Output(self._job, group[0], self._files)
        self._spent_aborts = []
        dropped: BatchHeader | None = None
        for facts in group:
            for header, batch in self._batches(facts):
                rewritten = self._rewritten(header, batch)
                dropped = header if rewritten is None else None
                if rewritten is not None:
                    output.write(rewritten)
                    self._throttle(len(rewritten))
                    output.is_changed |= rewritten is not batch
        if dropped is not None:
            output.write(empty_batch(dropped))
        is_changed = len(group) > 1 or output.is_changed or output.size_bytes != group[0].size_bytes
        if not is_changed:
            output.discard()
        return CleanedSegment(
            tuple(facts.base_offset for facts in group),
            output.close() if is_changed else None,
            sum(facts.size_bytes for facts in group),
            tuple(self._spent_aborts),
        )

    def _rewritten(
        self, header: BatchHeader, batch: memoryview
    ) -> bytes | bytearray | memoryview | None:
        """The replacement of a batch: itself if unchanged, None if it is dropped."""
        if header.base_offset >= self._map_end:
            return batch
        job = self._job
        is_commit = _is_commit(header, batch)
        decision = decide_batch(
            header, self._tracker, self._producers, job.now_ms, is_commit=is_commit
        )
        if decision.are_records_dropped:
            if is_commit is False:
                self._spent_aborts.append(header.base_offset)
            return _without_records(header, batch, decision)
        if header.record_count == 0:
            return batch if decision.stays_empty else None
        if header.is_control:
            return self._marker(header, batch, decision)
        return self._filtered(header, batch, decision)

    def _filtered(
        self, header: BatchHeader, batch: memoryview, decision: BatchDecision
    ) -> bytes | bytearray | memoryview | None:
        horizon_ms = delete_horizon_ms(header)
        keep = newest_only(self._newest, horizon_ms, self._job.now_ms)
        try:
            selection = select(batch, 0, header, keep)
        except (InvalidRecord, UnsupportedCompressionType) as error:
            _log.warning(
                "%s: kept undecodable batch offset=%d: %s",
                self._job.directory,
                header.base_offset,
                error,
            )
            return batch
        if not selection.kept:
            return _without_records(header, batch, decision)
        new_horizon_ms = None
        if selection.has_tombstone:
            if horizon_ms is None:
                new_horizon_ms = horizon_ms = self._new_horizon_ms()
            self._note_horizon(horizon_ms)
        if selection.is_whole and new_horizon_ms is None:
            return batch
        return encode_selection(selection, new_horizon_ms)

    def _marker(
        self, header: BatchHeader, batch: memoryview, decision: BatchDecision
    ) -> bytes | bytearray | memoryview:
        horizon_ms = delete_horizon_ms(header)
        if horizon_ms is not None:
            self._note_horizon(horizon_ms)
        if not decision.needs_horizon:
            return batch
        horizon_ms = self._new_horizon_ms()
        self._note_horizon(horizon_ms)
        return encode_selection(select(batch, 0, header, lambda *_: True), horizon_ms)

    def _new_horizon_ms(self) -> TimestampMs:
        return TimestampMs(self._job.now_ms + self._job.delete_retention_ms)

    def _note_horizon(self, horizon_ms: TimestampMs) -> None:
        known = self._next_horizon_ms
        self._next_horizon_ms = horizon_ms if known < 0 else min(known, horizon_ms)

    def _batches(self, facts: SegmentFacts) -> Iterator[tuple[BatchHeader, memoryview]]:
        """All batches of a segment, with verified checksums."""
        segment = Segment(self._job.directory, facts)
        read = segment.reader(self._files)
        position, chunk, chunk_position = 0, memoryview(b""), 0
        try:
            while position < facts.size_bytes:
                header, at = None, position - chunk_position
                if at + HEADER_SIZE_BYTES <= len(chunk):
                    header = read_header(chunk, at)
                if header is None or at + header.size_bytes > len(chunk):
                    size_bytes = max(_CHUNK_BYTES, header.size_bytes if header else 0)
                    chunk = memoryview(read(min(size_bytes, facts.size_bytes - position), position))
                    self._throttle(len(chunk))
                    chunk_position, at = position, 0
                    header = read_header(chunk, 0)
                verify_crc(chunk, header, at)
                yield header, chunk[at : at + header.size_bytes]
                position += header.size_bytes
        except CorruptMessage as error:
            raise segment.damaged(position, str(error.args[0])) from None
        finally:
            self._files.forget(segment.file)


def _is_commit(header: BatchHeader, batch: memoryview) -> bool | None:
    """Whether a transaction marker is a commit; None if the batch has no marker record."""
    if not header.is_control or header.record_count == 0:
        return None
    _, places = places_of(batch, 0, header)
    key = places[0].key or b""
    if len(key) < _MARKER_KEY.size:
        return None
    return bool(_MARKER_KEY.unpack_from(key)[1] == _COMMIT)


def _without_records(
    header: BatchHeader, batch: memoryview, decision: BatchDecision
) -> bytes | bytearray | memoryview | None:
    if not decision.stays_empty:
        return None
    return batch if header.record_count == 0 else empty_batch(header)


def group_segments(segments: Iterable[SegmentFacts], job: Job) -> Iterator[list[SegmentFacts]]:
    """Groups neighbours whose total size fits one segment (Kafka's Cleaner.groupSegmentsBySize)."""
    group: list[SegmentFacts] = []
    ends = {a.base_offset: b.base_offset for a, b in pairwise(job.segments)}
    for facts in segments:
        if group:
            size_bytes = facts.size_bytes + sum(item.size_bytes for item in group)
            entries = facts.index_count + sum(item.index_count for item in group) + len(group)
            end_offset = ends.get(facts.base_offset, job.end_offset)
            if (
                size_bytes > job.segment_bytes
                or entries * ENTRY_SIZE_BYTES > job.segment_index_bytes
                or end_offset - 1 - group[0].base_offset > OFFSET_DELTA_MAX
            ):
                yield group
                group = []
        group.append(facts)
    if group:
        yield group


class _Output:
    """A cleaned segment that is being written."""

    def __init__(self, job: Job, first: SegmentFacts, files: OpenFiles) -> None:
        base_offset = first.base_offset
        self._files = files
        self._first_timestamp = first.first_timestamp
        self._interval_bytes = job.index_interval_bytes
        self._segment = Segment(job.directory, SegmentFacts(base_offset))
        self._segment.file = OpenFile(swapping.cleaned_path(job.directory, base_offset, job.token))
        self._segment.index.file = OpenFile(
            swapping.cleaned_index_path(job.directory, base_offset, job.token)
        )
        self._unwritten = bytearray()
        self.is_changed = False

    @property
    def size_bytes(self) -> int:
        return self._segment.size_bytes

    def write(self, batch: bytes | bytearray | memoryview) -> None:
        self._segment.note_batch(read_header(batch), self._first_timestamp, self._interval_bytes)
        self._unwritten += batch
        if len(self._unwritten) >= _CHUNK_BYTES:
            self._flush()

    def close(self) -> SegmentFacts:
        """Makes the segment durable and returns its metadata."""
        self._flush()
        segment = self._segment
        self._files.sync(segment.file)
        segment.index.flush(self._files, threading.Lock())
        segment.forget(self._files)
        return segment.facts()

    def discard(self) -> None:
        self._segment.unlink(self._files)

    def _flush(self) -> None:
        position = self._segment.size_bytes - len(self._unwritten)
        self._files.pwrite(self._segment.file, self._unwritten, position)
        self._unwritten.clear()
