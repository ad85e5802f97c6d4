"""The log of one partition: append, sync, truncate, read and clean its segments.

Threads: `append`, `read` and the lookups are fast and run on the owner's thread. Calls that wait for
the disk (`sync`, `truncate_to`, `delete_before`, `apply_retention`, `replace_segments`, `close`) may
run concurrently on a worker thread; they exclude one another. Two locks make that safe. Slow calls
hold `_slow` from start to end. `_lock` is held only briefly; a call that needs both takes `_slow`
first.

A segment may be replaced by a cleaned one while it is being read. A reader that has the file open
reads it to its end. A reader that has to reopen it finds it retired (`OpenFiles.retire`) and looks
the segment up again.

Offsets: log_start_offset <= synced_offset <= log_end_offset.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Container, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from kafkaesque.broker.storage import snapshots, swapping
from kafkaesque.broker.storage.chain import ReadRange, ReadResult, SegmentChain, choose_expired
from kafkaesque.broker.storage.checkpoint import Cleaned, LogStructure, SyncPoint
from kafkaesque.broker.storage.config import LogConfig
from kafkaesque.broker.storage.durability import Durability, SyncWork
from kafkaesque.broker.storage.index import IndexDamaged
from kafkaesque.broker.storage.lookup import TimestampedOffset, find_first, find_latest
from kafkaesque.broker.storage.open_files import FileRange, OpenFiles, Place
from kafkaesque.broker.storage.recovery import Recovered, recover
from kafkaesque.broker.storage.rules.epochs import NO_EPOCH_START, EpochStart, LeaderEpochs
from kafkaesque.broker.storage.rules.segment_facts import SegmentFacts
from kafkaesque.broker.storage.scanning import ANY
from kafkaesque.broker.storage.segment import Segment
from kafkaesque.broker.storage.unsynced_tail import CutRecorder, Share, UnsyncedTail
from kafkaesque.model.errors import CorruptMessage, OffsetOutOfRange, StorageFailed, check
from kafkaesque.model.ids import GroupId, LeaderEpoch, Offset, TimestampMs
from kafkaesque.records.batch import BatchHeader

_NEW_DIRECTORY_LEVELS: Final = 3
"""The log's directory, its topic's and the directory of all topics: all three may be new."""
_FIRST_OFFSET: Final = Offset(0)
_ATTEMPTS_MAX: Final = 5
"""A cleaning replaces a segment at most once, so more missing files than this are a real error."""
_JUST_WRITTEN_BYTES: Final = 1024 * 1024
"""Bytes this close to the log's end are assumed to be in the page cache."""
Found = TypeVar("Found")
_make_tuple = tuple.__new__
"""Makes a NamedTuple without its constructor, which is a Python function."""


class Deleted(NamedTuple):
    """The segments and bytes that retention removed."""

    segments: int
    size_bytes: int


class Log:
    """One partition's batches on disk. Construct it with `Log.open`."""

    __slots__ = (
        "_chain",
        "_directory",
        "_directory_levels",
        "_durability",
        "_epochs",
        "_files",
        "_is_saved",
        "_lock",
        "_slow",
        "cleaned",
        "log_end_offset",
        "log_start_offset",
        "tail",
    )

    def __init__(
        self, directory: str, config: LogConfig, files: OpenFiles, found: Recovered
    ) -> None:
        self._directory = directory
        self._files = files
        self._chain = SegmentChain(
            directory,
            config,
            files,
            found.segments,
            has_new_name=found.is_new or found.is_changed,
            is_saved=not found.is_changed,
        )
        self._epochs = found.epochs
        self._durability = Durability(directory, files, found.synced_offset)
        self._directory_levels = _NEW_DIRECTORY_LEVELS if found.is_new else 1
        self._is_saved = True
        self._lock = threading.Lock()
        self._slow = threading.Lock()
        self.log_start_offset = found.log_start_offset
        self.log_end_offset = found.log_end_offset
        self.cleaned = found.cleaned
        """How far the log is cleaned; set by `note_cleaned`."""
        self.tail: UnsyncedTail | None = None
        """Set by `attach_tail`, until the log is closed."""

    @classmethod
    def open(
        cls, directory: Path | str, config: LogConfig, files: OpenFiles, *, clean: bool
    ) -> Log:
        """Opens the log in `directory`, creating it if absent and recovering it unless `clean`.

        `clean` means that the node closed all its logs when it last stopped.
        """
        path = str(directory)
        try:
            return cls(path, config, files, recover(path, config, files, clean=clean))
        except OSError as error:
            raise StorageFailed(f"cannot open the log in {path}: {error}") from error

    @property
    def config(self) -> LogConfig:
        return self._chain.config

    def set_config(self, config: LogConfig) -> None:
        """Applies these settings from now on; existing segments stay as they are."""
        self._chain.config = config

    @property
    def files(self) -> OpenFiles:
        return self._files

    @property
    def directory(self) -> Path:
        return Path(self._directory)

    @property
    def synced_offset(self) -> Offset:
        """Everything before it is durable, in the files or in a journal."""
        return self._durability.synced_offset

    @property
    def file_synced_offset(self) -> Offset:
        """Everything before it is durable in the files. file_synced_offset <= synced_offset"""
        return self._durability.file_synced_offset

    @property
    def failure(self) -> str | None:
        """Why this log rejects appends; None while it accepts them."""
        return self._durability.failure

    @property
    def needs_sync(self) -> bool:
        """True if `sync` has something to do."""
        return bool(self._chain.unsynced) or not (self._is_saved and self._chain.is_saved)

    @property
    def has_unsynced_closed_segment(self) -> bool:
        """True if a segment was closed since the last sync.

        A caller that does not sync before every acknowledgement should then sync in the background,
        as Kafka does. Otherwise recovery time and memory grow with the unsynced data.
        """
        with self._lock:
            active = self._chain.active
            return any(segment is not active for segment in self._chain.unsynced)

    @property
    def size_bytes(self) -> int:
        with self._lock:
            return sum(segment.size_bytes for segment in self._chain.segments)

    @property
    def segments(self) -> tuple[SegmentFacts, ...]:
        """The metadata of each segment, the active one last."""
        with self._lock:
            return tuple(segment.facts() for segment in self._chain.segments)

    @property
    def modified_ms(self) -> int:
        """When the last batch was written, by the wall clock; 0 if there is none."""
        return self._files.modified_ms(self._chain.active.file)

    @property
    def active_base_offset(self) -> Offset:
        """Base offset of the active segment; equals the last batch's if that batch started it."""
        return self._chain.segments[-1].base_offset

    # -- append and sync --------------------------------------------------------------------------

    def append(
        self, buffer: bytes | bytearray | memoryview, header: BatchHeader, now_ms: int
    ) -> Offset:
        """Writes one stamped batch at the end. StorageFailed leaves the log as it was.

        Returns the base offset of the segment that holds the batch; it is the batch's own if the
        batch started a segment.
        """
        base_offset = header.base_offset
        with self._lock:
            if self._durability.failure is not None:
                self._durability.raise_if_failed()
            if base_offset < self.log_end_offset or len(buffer) != header.size_bytes:
                check(False, f"{self._directory} at {self.log_end_offset} cannot take {header}")
            segment_base_offset = self._chain.append(buffer, header, now_ms)
            if header.leader_epoch > self._epochs.latest:
                self._epochs.assign(header.leader_epoch, base_offset)
                self._is_saved &= self._epochs.has_at_most_one
            self.log_end_offset = Offset(base_offset + header.last_offset_delta + 1)
            if (tail := self.tail) is not None:
                synced_offset = self._durability.synced_offset
                tail.append(buffer, segment_base_offset, self.log_end_offset, synced_offset)
        return segment_base_offset

    def restore(
        self, buffer: bytes | memoryview, header: BatchHeader, segment_base_offset: Offset
    ) -> None:
        """Appends a batch that was in the segment `segment_base_offset` before a crash lost it."""
        with self._lock:
            if segment_base_offset > self._chain.active.base_offset:
                self._chain.roll(segment_base_offset)
        modified_ms = self._files.modified_ms(self._chain.active.file)
        self.append(buffer, header, modified_ms)

    def sync(self) -> Offset:
        """Makes everything appended so far durable and returns `synced_offset`.

        After a failed fsync, this and `append` of this object raise StorageFailed for good. The log must
        be opened again: `PartitionTable` does that for a partition.
        """
        with self._slow:
            self._sync()
            return self._durability.synced_offset

    def sync_if_open(self) -> None:
        """Like `sync`, but does nothing if the log was closed in the meantime."""
        with self._slow:
            if self.tail is not None:
                self._sync()

    def attach_tail(self, group: GroupId, recorder: CutRecorder) -> None:
        """Keeps the batches appended from now on for the journal `recorder`. Every cut is recorded
        there before the file is changed."""
        self.tail = UnsyncedTail(group, self.log_end_offset, recorder, self.note_durable)

    def share(self) -> Share | None:
        """The batches a journal must hold to make the whole log durable; None if they are too many
        or the log has failed."""
        tail = self.tail
        if tail is None or self._durability.failure is not None:
            return None
        return tail.take(self._durability.synced_offset)

    def note_durable(self, share: Share) -> None:
        """Records that a journal holds `share` durably."""
        with self._lock:
            if share.is_current:
                self._durability.synced_offset = max(
                    self._durability.synced_offset, share.end_offset
                )

    def _sync(self) -> bool:
        """Requires `_slow`. Returns False if the structure, the sync point or an index was not
        written; recovery then reads more."""
        with self._lock:
            self._durability.raise_if_failed()
            if not self.needs_sync:
                return True
            work = self._take_work()
        is_complete = False
        try:
            is_complete = self._durability.perform(work, self._lock)
        finally:
            if not is_complete:
                self._mark_undone(work)
        return is_complete

    def _take_work(self) -> SyncWork:
        chain = self._chain
        is_saved = self._is_saved and chain.is_saved
        closed = tuple(segment.facts() for segment in chain.segments[:-1])
        work = SyncWork(
            SyncPoint(self.log_end_offset, chain.active.facts(), self._epochs.latest_start),
            chain.unsynced,
            None if is_saved else self._structure(closed),
            self._directory_levels if chain.has_new_name else 0,
        )
        for segment in work.segments:
            segment.is_synced = True
        if chain.has_new_name:
            self._directory_levels = 1
        chain.unsynced = []
        chain.has_new_name = False
        self._is_saved = chain.is_saved = True
        return work

    def _structure(self, closed: tuple[SegmentFacts, ...]) -> LogStructure:
        epochs = tuple(self._epochs.starts())
        return LogStructure(self.log_start_offset, epochs, closed, self.cleaned)

    def _mark_undone(self, work: SyncWork) -> None:
        """Marks work that failed as not done, for the next sync."""
        with self._lock:
            for segment in work.segments:
                if segment.is_synced:
                    self._chain.note_unsynced(segment)
            self._chain.has_new_name |= work.directory_levels > 0
            self._directory_levels = max(self._directory_levels, work.directory_levels)
            self._is_saved = self._is_saved and work.structure is None

    # -- cut --------------------------------------------------------------------------------------

    def truncate_to(self, offset: Offset) -> None:
        """Removes the batches with records at or after `offset`.

        A batch that contains `offset` is removed as a whole, so the log may end before `offset`.
        """
        with self._slow:
            if offset >= self.log_end_offset:
                return
            check(
                offset >= self.log_start_offset,
                f"cannot cut {self._directory} at {offset}: it starts at {self.log_start_offset}",
            )
            self._record_cut(offset)
            with self._lock:
                self._cut(self._chain.number_of(offset), offset)
            self._sync()

    def _record_cut(self, offset: Offset) -> None:
        """Records the cut in the journal, so that recovery does not restore the removed batches.

        Requires `_slow`. Raises StorageFailed.
        """
        if self.tail is not None:
            self.tail.cut(offset)

    def _cut(self, number: int, offset: Offset) -> None:
        """Requires both locks: a reader must not see a half-done cut."""
        segment = self._chain.segments[number]
        position, end_offset = segment.size_bytes, offset
        _, start = self._chain.place_of(segment, offset)
        for at, header in self._chain.headers(segment, start):
            if header.next_offset > offset:
                position = at
                end_offset = max(self.log_start_offset, min(offset, header.base_offset))
                break
        self._durability.synced_offset = min(self._durability.synced_offset, end_offset)
        if end_offset < self._durability.file_synced_offset:
            # Until the next sync point, recovery treats the whole segment as not durable and reads it.
            base = segment.base_offset
            self._durability.move_back(SyncPoint(base, SegmentFacts(base), NO_EPOCH_START))
        try:
            self._chain.cut(number, position)
        except OSError as error:
            raise self._durability.fail(f"cannot cut {segment.file.path}: {error}") from error
        self._epochs.drop_from(end_offset)
        self._is_saved = False
        self.log_end_offset = end_offset
        snapshots.delete_snapshots(
            self._directory, before=_FIRST_OFFSET, after=end_offset, calls=self._files.calls
        )

    def delete_before(self, offset: Offset) -> None:
        """Makes `offset` the log start offset, durably, and deletes segments that end before it."""
        with self._slow:
            if offset <= self.log_start_offset:
                return
            self._check_range(offset)
            self._sync()
            self._advance_start(offset)
            if not self._is_saved:
                raise StorageFailed(f"cannot record the new first offset of {self._directory}")

    def apply_retention(self, now_ms: int, *, committed_offset: Offset | None = None) -> Deleted:
        """Deletes the oldest segments as the retention settings require.

        Only committed records are deleted. Without `committed_offset` all records count as committed.
        """
        with self._slow:
            with self._lock:
                if self._count_expired(now_ms, committed_offset) == 0:
                    return Deleted(0, 0)
            self._sync()
            with self._lock:
                chain = self._chain
                count = self._count_expired(now_ms, committed_offset)
                if count == len(chain.segments):
                    # Keep what was appended since the sync: it was not part of the decision.
                    if chain.active.is_synced:
                        chain.roll(self.log_end_offset)
                    else:
                        count -= 1
                size_bytes = sum(segment.size_bytes for segment in chain.segments[:count])
                start = max(self.log_start_offset, chain.segments[count].base_offset)
            self._sync()
            self._advance_start(start)
        return Deleted(count, size_bytes)

    def plan_retention(self, now_ms: int, committed_offset: Offset) -> Offset:
        """Returns the log start offset that the retention settings allow: a segment's base offset.

        Deletes nothing; `delete_before` does that. If the active segment has expired too, it is
        closed so that it can be deleted.
        """
        with self._lock:
            chain = self._chain
            count = self._count_expired(now_ms, committed_offset)
            if count == len(chain.segments):
                chain.roll(self.log_end_offset)
            return chain.segments[count].base_offset

    def _count_expired(self, now_ms: int, committed_offset: Offset | None) -> int:
        facts = [segment.facts() for segment in self._chain.segments]
        end = self.log_end_offset
        committed = end if committed_offset is None else committed_offset
        return choose_expired(facts, end, committed, now_ms, self._chain.config)

    def _advance_start(self, offset: Offset) -> None:
        """Moves the log start offset and deletes the segments before it. Requires `_slow`.

        Files are deleted before the structure is saved, so that this can free space on a full disk.
        Recovery treats segments missing at the front as deleted.
        """
        with self._lock:
            doomed = self._chain.take_before(offset)
            self.log_start_offset = offset
            self._epochs.drop_before(offset)
            self._is_saved = False
        for segment in doomed:
            segment.unlink(self._files)
        self._sync()

    def reset_to(self, offset: Offset) -> None:
        """Removes every batch, durably; the log is then empty at `offset`, which may be any offset.

        If the log has no batches, nothing on disk changes until one is appended.
        """
        with self._slow:
            self._record_cut(_FIRST_OFFSET)
            with self._lock:
                self._durability.raise_if_failed()
                is_empty = all(segment.size_bytes == 0 for segment in self._chain.segments)
                if not is_empty:
                    empty = SyncPoint(offset, SegmentFacts(offset), NO_EPOCH_START)
                    self._durability.move_back(empty)
                    self._is_saved = False
                self._chain.reset(offset)
                self._epochs = LeaderEpochs()
                self.log_start_offset = self.log_end_offset = offset
                self._durability.reset_to(offset)
            snapshots.delete_snapshots(
                self._directory, before=offset, after=offset, calls=self._files.calls
            )
            self._sync()

    # -- read -------------------------------------------------------------------------------------

    def segment(self, base_offset: Offset) -> Segment:
        """The segment with this base offset, for reads at known positions.

        Raises OffsetOutOfRange if it was deleted.
        """
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
        """Reads batches of one segment, from the one that contains `offset` up to `limit_offset`.

        With `at_least_one` the first batch is returned even if it exceeds `max_bytes`. A damaged
        batch is never returned: a read ends before it, and a read that starts at it raises
        CorruptMessage. From `whole_from` on the log has no gaps from cleaning, so a wrong offset or
        leader epoch, which no checksum covers, is detected too; such a read ends with its epoch.
        """
        for attempt in range(_ATTEMPTS_MAX):
            try:
                with self._lock:
                    if not self.log_start_offset <= offset <= self.log_end_offset:
                        self._check_range(offset)
                    limit_offset = min(limit_offset, self.log_end_offset)
                    if self._durability.failure is not None:
                        limit_offset = min(limit_offset, self._durability.synced_offset)
                    if offset >= limit_offset:
                        return ReadResult(memoryview(b""), offset)
                    epoch, end_offset, is_whole = ANY, limit_offset, False
                    if whole_from is not None and offset >= whole_from:
                        epoch, end_offset = self._epochs.range_at(offset, limit_offset)
                        end_offset, is_whole = min(limit_offset, end_offset), True
                    segments = self._chain.segments[self._chain.number_of(offset) :]
                limits = (offset, end_offset, max_bytes, at_least_one, epoch, is_whole)
                return self._read_from(segments, _make_tuple(ReadRange, limits))
            except FileNotFoundError as error:
                if attempt == _ATTEMPTS_MAX - 1:
                    self._check_range(offset)
                    raise self._unreadable(error) from error
            except OSError as error:
                self._check_range(offset)
                raise self._unreadable(error) from error
        return ReadResult(memoryview(b""), offset)

    def on_disk(
        self, offset: Offset, max_bytes: int, tried: Container[Place] = ()
    ) -> FileRange | None:
        """The file range to load so that `read` does not wait for the disk; None if nothing to load.

        Does not block; it samples the page cache, so the answer is a guess. The first range may be
        the index. A range in `tried` is not returned again: `read` reports what went wrong with it.
        """
        with self._lock:
            if not self.log_start_offset <= offset < self.log_end_offset:
                return None
            segment = self._chain.segments[self._chain.number_of(offset)]
            index = FileRange(segment.index.file, 0, segment.index.flushed_size_bytes)
            position = segment.position_in_memory(offset)
        try:
            if position is None:
                if self._must_load(index, tried):
                    return index
                with self._lock:
                    _, position = segment.place_of(self._files, offset)
            rest_bytes = segment.size_bytes - position
            if position >= segment.opened_size_bytes and rest_bytes <= _JUST_WRITTEN_BYTES:
                return None
            size_bytes = min(rest_bytes, max_bytes + self._chain.config.index_interval_bytes)
            batches = FileRange(segment.file, position, size_bytes)
            return batches if self._must_load(batches, tried) else None
        except (IndexDamaged, OSError):
            return None  # `read` repairs it or reports it

    def size_from(self, offset: Offset) -> int:
        """The size of the batches from `offset` on, without reading from the disk.

        Too large by at most an index interval, or by part of a segment whose index is not in memory.
        """
        with self._lock:
            segments = self._chain.segments[self._chain.number_of(offset) :]
            position = segments[0].position_in_memory(offset) or 0
            return sum(segment.size_bytes for segment in segments) - position

    def _must_load(self, wanted: FileRange, tried: Container[Place]) -> bool:
        if wanted.start in tried:
            return False
        # Opening the file may wait for the disk as well.
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
            # A damaged length field made the read skip the batch.
            raise CorruptMessage(f"{self._directory} has no sound batch at offset {offset}")
        return ReadResult(memoryview(b""), offset)

    def headers_from(self, offset: Offset) -> Iterator[BatchHeader]:
        """The headers of all batches from the one that contains `offset` on. Reads no records."""
        chain = self._chain
        attempts = 0
        while attempts < _ATTEMPTS_MAX:
            attempts += 1
            with self._lock:
                segments = chain.segments[chain.number_of(offset) :]
            try:
                for segment in segments:
                    with self._lock:
                        _, position = chain.place_of(segment, offset)
                    for _, header in chain.headers(segment, position):
                        if header.next_offset > offset:
                            yield header
                            offset, attempts = header.next_offset, 0
                return
            except FileNotFoundError as error:
                if attempts == _ATTEMPTS_MAX:
                    raise self._unreadable(error) from error
            except OSError as error:
                raise self._unreadable(error) from error

    def find_by_timestamp(self, timestamp: TimestampMs) -> TimestampedOffset | None:
        """The first record whose timestamp is at least `timestamp`."""
        return self._with_retries(
            lambda segments, start: find_first(
                segments, self._files, timestamp, start, self._position_of_time
            )
        )

    def max_timestamp(self) -> TimestampedOffset | None:
        """The first record that has the largest timestamp; None if no record has one."""
        return self._with_retries(lambda segments, start: find_latest(segments, self._files, start))

    def _with_retries(self, find: Callable[[list[Segment], Offset], Found]) -> Found:
        """Calls `find` again with the current segments if a segment was replaced meanwhile."""
        attempt = 0
        while True:
            with self._lock:
                start, segments = self.log_start_offset, list(self._chain.segments)
            try:
                return find(segments, start)
            except OSError as error:
                attempt += 1
                if attempt == _ATTEMPTS_MAX or not isinstance(error, FileNotFoundError):
                    raise self._unreadable(error) from error

    def epoch_end(self, epoch: LeaderEpoch) -> EpochStart:
        """The largest epoch at or below `epoch` that wrote here, and its end offset.

        (NO_EPOCH, NO_OFFSET) if the log does not contain `epoch` yet.
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

    # -- cleaning --------------------------------------------------------------------------------

    def roll(self) -> None:
        """Closes the active segment, so that it can be cleaned."""
        with self._lock:
            self._durability.raise_if_failed()
            if self._chain.active.size_bytes > 0:
                self._chain.roll(self.log_end_offset)

    def note_cleaned(self, cleaned: Cleaned) -> None:
        """Records how far the log is cleaned; durable with the next sync."""
        with self._lock:
            self.cleaned = cleaned
            self._is_saved = False

    def replace_segments(self, bases: Sequence[Offset], cleaned: SegmentFacts, token: str) -> bool:
        """Replaces the segments `bases` by the cleaned segment in the file of `token`, durably.

        Returns False and does nothing if some of them no longer exist. A disk error before the swap
        is committed leaves everything as it was (StorageFailed).
        """
        directory, calls = self._directory, self._files.calls
        with self._slow:
            if not self._sync():
                raise StorageFailed(f"cannot record where {directory} is durable")
            with self._lock:
                number = self._chain.number_of(bases[0])
                old = self._chain.segments[number : number + len(bases)]
                following = self._chain.segments[number + len(bases) :]
                if [segment.base_offset for segment in old] != list(bases) or not following:
                    return False
                rest = [s for s in self._chain.segments[:-1] if s not in old]
                structure = self._structure(tuple(segment.facts() for segment in rest))
                self._is_saved = False
            end_offset = following[0].base_offset
            try:
                self._durability.save_before_swap(structure)
                swapping.commit(directory, bases[0], end_offset, token, calls)
            except OSError as error:
                raise StorageFailed(f"cannot clean {directory}: {error}") from error
            try:
                with self._files.held([segment.file for segment in old]), self._lock:
                    for segment in old:
                        segment.retire(self._files)
                    swapping.apply(directory, bases, end_offset, calls)
                    swapping.install_index(directory, bases[0], token, calls)
                    self._chain.replace(number, len(old), cleaned)
                calls.sync_directory(directory)
            except OSError as error:
                raise self._durability.fail(f"cannot swap in {directory}: {error}") from error
            self._sync()
        return True

    def rewrite_at(self, base_offset: Offset, position: int, data: bytes | memoryview) -> None:
        """Overwrites damaged bytes with `data`, which the caller has verified, durably."""
        segment = self.segment(base_offset)
        with self._slow:
            self._durability.raise_if_failed()
            try:
                self._files.pwrite(segment.file, data, position)
            except OSError as error:
                raise StorageFailed(f"cannot write {segment.file.path}: {error}") from error
            try:
                self._files.sync(segment.file)
            except OSError as error:
                path = segment.file.path
                raise self._durability.fail(f"fsync of {path} failed: {error}") from error

    def save_snapshot(self, offset: Offset, content: bytes) -> None:
        """Saves `content` next to the segments as the state at `offset`."""
        snapshots.save_snapshot(self._directory, offset, content, self._files.calls)

    def latest_snapshot(self, offset: Offset) -> tuple[Offset, bytes] | None:
        """The last intact snapshot at or before `offset`, with its offset."""
        return snapshots.latest_snapshot(self._directory, offset, self._files.calls)

    def prune_snapshots(self, keep: int) -> None:
        """Deletes snapshots before the log start, and all others except the last `keep` and the one
        at the log start."""
        snapshots.delete_snapshots(
            self._directory,
            before=self.log_start_offset,
            after=self.log_end_offset,
            keep=keep,
            calls=self._files.calls,
        )

    def close(self, clean: bool = True) -> None:
        """Releases the descriptors; if `clean`, syncs first so that the next open reads nothing."""
        with self._slow:
            if clean and self._durability.failure is None:
                with self._lock:
                    self._chain.trim()
                self._sync()
            with self._lock:
                # A late sync must not touch files that may belong to another log by then.
                self._chain.unsynced, self._chain.is_saved, self._is_saved = [], True, True
                self._chain.forget()
                self._durability.forget()
            if self.tail is not None:
                self.tail.close()
                self.tail = None

    def abandon(self) -> None:
        """Closes the log because another log replaces it; recovery must not restore any of it."""
        with self._slow:
            self._record_cut(_FIRST_OFFSET)
        self.close(clean=False)

    def delete(self) -> None:
        """Deletes the log and its directory."""
        if self.tail is not None:
            self.tail.discard()
        self.close(clean=False)
        self._files.calls.remove_tree(self._directory)
