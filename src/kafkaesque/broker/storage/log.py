"""The log of one partition: its segments in order, append, sync, cut, read, clean.

Threads: `append`, `read` and the lookups are quick and belong to the owner's thread. Calls that wait
for the disk (`sync`, `truncate_to`, `delete_before`, `apply_retention`, `replace_segments`, `close`)
may run in a worker thread at the same time and exclude one another. Two locks make that safe: the
slow calls hold `_slow` from beginning to end; `_lock` is held only for moments, always inside
`_slow`.

A segment may be replaced by a cleaned one while it is being read. A reader that has the file open
reads it to its end; one that would have to open it again finds it retired (`OpenFiles.retire`) and
looks the segment up again.

Offsets: log_start_offset <= synced_offset <= log_end_offset.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Container, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from kafkaesque.broker.storage import snapshots, swapping
from kafkaesque.broker.storage.chain import ReadRange, ReadResult, SegmentChain
from kafkaesque.broker.storage.checkpoint import Cleaned, LogStructure, SyncPoint
from kafkaesque.broker.storage.config import LogConfig
from kafkaesque.broker.storage.durability import Durability, SyncWork
from kafkaesque.broker.storage.epochs import NO_EPOCH_START, EpochStart, LeaderEpochs
from kafkaesque.broker.storage.index import IndexDamaged
from kafkaesque.broker.storage.lookup import TimestampedOffset, find_first, find_latest
from kafkaesque.broker.storage.open_files import FileRange, OpenFiles, Place
from kafkaesque.broker.storage.recovery import Recovered, recover
from kafkaesque.broker.storage.retention import choose_expired
from kafkaesque.broker.storage.scanning import ANY
from kafkaesque.broker.storage.segment import Segment, SegmentFacts
from kafkaesque.broker.storage.unsynced_tail import Share, UnsyncedTail
from kafkaesque.model.errors import CorruptMessage, OffsetOutOfRange, StorageFailed, check
from kafkaesque.model.ids import LeaderEpoch, Offset, TimestampMs
from kafkaesque.records.batch import BatchHeader

_NEW_DIRECTORY_LEVELS: Final = 3
"""The log's directory, the topic's, and the one of all topics, whose names may all be new."""
_FIRST_OFFSET: Final = Offset(0)
_LOOKS_MAX: Final = 5
"""A segment is replaced at most once in a cleaning; more misses than this are not that."""
_JUST_WRITTEN_BYTES: Final = 1024 * 1024
"""What was written at the end of a log is in memory still: who follows it is not looked after."""
Found = TypeVar("Found")
_make_tuple = tuple.__new__
"""A NamedTuple without its own constructor, which is a function of Python."""


class Deleted(NamedTuple):
    """What retention removed."""

    segments: int
    size_bytes: int


class Log:
    """One partition's batches on disk. Made by `open`."""

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
        self._chain = SegmentChain(directory, config, files, found.segments)
        self._chain.is_saved = not found.is_changed
        self._chain.has_new_name = found.is_new or found.is_changed
        self._epochs = found.epochs
        self._durability = Durability(directory, files, found.synced_offset)
        self._directory_levels = _NEW_DIRECTORY_LEVELS if found.is_new else 1
        self._is_saved = True
        self._lock = threading.Lock()
        self._slow = threading.Lock()
        self.log_start_offset = found.log_start_offset
        self.log_end_offset = found.log_end_offset
        self.cleaned = found.cleaned
        """How far a cleaner came; changed by `note_cleaned`."""
        self.tail: UnsyncedTail | None = None
        """Set if a journal may hold what is appended; it hears of every cut before the file does."""

    @classmethod
    def open(
        cls, directory: Path | str, config: LogConfig, files: OpenFiles, *, clean: bool
    ) -> Log:
        """The log in `directory`, made if absent and recovered unless `clean`.

        `clean` says that the node closed all its logs when it last stopped.
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
        """Use these settings from now on; segments that are there stay as they are."""
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
        """Why this log takes no more records; None while it does."""
        return self._durability.failure

    @property
    def needs_sync(self) -> bool:
        """True if `sync` has something to do."""
        return bool(self._chain.unsynced) or not (self._is_saved and self._chain.is_saved)

    @property
    def has_unsynced_closed_segment(self) -> bool:
        """True if a segment was closed since the last sync.

        Whoever does not sync for every acknowledgement should then do so in the background, as
        Kafka does, or recovery and memory grow with all that was never synced.
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

    # -- append and sync --------------------------------------------------------------------------

    def append(
        self, buffer: bytes | bytearray | memoryview, header: BatchHeader, now_ms: int
    ) -> Offset:
        """Write one stamped batch behind the last. StorageFailed leaves the log as it was.

        The first offset of the segment that has it: the batch's own if it began one.
        """
        base_offset = header.base_offset
        with self._lock:
            if self._durability.failure is not None:
                self._durability.refuse_if_failed()
            if base_offset < self.log_end_offset or len(buffer) != header.size_bytes:
                check(False, f"{self._directory} at {self.log_end_offset} cannot take {header}")
            segment_base_offset = self._chain.append(buffer, header, now_ms)
            if header.leader_epoch > self._epochs.latest:
                self._epochs.assign(header.leader_epoch, base_offset)
                self._is_saved &= self._epochs.is_told_by_latest
            self.log_end_offset = Offset(base_offset + header.last_offset_delta + 1)
            if (tail := self.tail) is not None:
                synced_offset = self._durability.synced_offset
                tail.append(buffer, segment_base_offset, self.log_end_offset, synced_offset)
        return segment_base_offset

    def restore(
        self, buffer: bytes | memoryview, header: BatchHeader, segment_base_offset: Offset
    ) -> None:
        """Append a batch that stood in the segment named before a crash took it."""
        with self._lock:
            if segment_base_offset > self._chain.active.base_offset:
                self._chain.roll(segment_base_offset)
        modified_ms = self._files.modified_ms(self._chain.active.file)
        self.append(buffer, header, modified_ms)

    def sync(self) -> Offset:
        """Make everything appended so far durable; the offset up to which that is so.

        After a failed fsync this and `append` raise StorageFailed for good.
        """
        with self._slow:
            self._sync()
            return self._durability.synced_offset

    def sync_if_open(self) -> None:
        """As `sync`, for whoever cannot know whether the log was closed meanwhile."""
        with self._slow:
            if self.tail is not None:
                self._sync()

    def share(self) -> Share | None:
        """What a journal has to hold so that all of the log is durable; None if that is too much."""
        tail = self.tail
        if tail is None or self._durability.failure is not None:
            return None
        return tail.take(self._durability.synced_offset)

    def note_durable(self, share: Share) -> None:
        """A journal holds what `share` gave."""
        with self._lock:
            if share.is_current:
                self._durability.synced_offset = max(
                    self._durability.synced_offset, share.end_offset
                )

    def _sync(self) -> bool:
        """With `_slow` held. False if a small file could not be written and lags."""
        with self._lock:
            self._durability.refuse_if_failed()
            if not self.needs_sync:
                return True
            work = self._take_work()
        is_complete = False
        try:
            is_complete = self._durability.perform(work, self._lock)
        finally:
            if not is_complete:
                self._put_back(work)
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

    def _put_back(self, work: SyncWork) -> None:
        """What could not be made durable is still to be done."""
        with self._lock:
            for segment in work.segments:
                if segment.is_synced:
                    self._chain.note_unsynced(segment)
            self._chain.has_new_name |= work.directory_levels > 0
            self._directory_levels = max(self._directory_levels, work.directory_levels)
            self._is_saved = self._is_saved and work.structure is None

    # -- cut --------------------------------------------------------------------------------------

    def truncate_to(self, offset: Offset) -> None:
        """Remove the batches that have records at or behind `offset`; the log then ends before it.

        A batch that begins before `offset` and ends behind it goes as a whole.
        """
        with self._slow:
            if offset >= self.log_end_offset:
                return
            check(offset >= self.log_start_offset, f"cannot cut {self._directory} at {offset}")
            self._tell_cut(offset)
            with self._lock:
                self._cut(self._chain.number_of(offset), offset)
            self._sync()

    def _tell_cut(self, offset: Offset) -> None:
        """With `_slow` held: a recovery must not bring back what is cut. Raises StorageFailed."""
        if self.tail is not None:
            self.tail.cut(offset)

    def _cut(self, number: int, offset: Offset) -> None:
        """With both locks held: whoever reads must not see it half done."""
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
            # Until the next sync point the whole segment counts as not durable: recovery reads it.
            base = segment.base_offset
            self._durability.lower(SyncPoint(base, SegmentFacts(base), NO_EPOCH_START))
        try:
            self._chain.cut(number, position)
        except OSError as error:
            raise self._durability.fail(f"cannot cut {segment.file.path}: {error}") from error
        self._epochs.drop_from(end_offset)
        self._is_saved = False
        self.log_end_offset = end_offset
        snapshots.delete_snapshots(
            self._directory, before=_FIRST_OFFSET, behind=end_offset, calls=self._files.calls
        )

    def delete_before(self, offset: Offset) -> None:
        """Make `offset` the first one, durably; segments that end before it are deleted."""
        with self._slow:
            if offset <= self.log_start_offset:
                return
            self._check_range(offset)
            self._sync()
            self._start_at(offset)
            if not self._is_saved:
                raise StorageFailed(f"cannot record the new first offset of {self._directory}")

    def apply_retention(self, now_ms: int, *, committed_offset: Offset | None = None) -> Deleted:
        """Delete the oldest segments as far as the settings say, and only what is committed.

        Everything is, unless told otherwise.
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
                    # Never lose what was appended since the sync: it was not looked at.
                    if chain.active.is_synced:
                        chain.roll(self.log_end_offset)
                    else:
                        count -= 1
                size_bytes = sum(segment.size_bytes for segment in chain.segments[:count])
                start = max(self.log_start_offset, chain.segments[count].base_offset)
            self._sync()
            self._start_at(start)
        return Deleted(count, size_bytes)

    def plan_retention(self, now_ms: int, committed_offset: Offset) -> Offset:
        """Where the log may start by its settings: the first offset of a segment.

        Nothing is deleted: `delete_before` does that. A last segment that is expired as a whole is
        closed, so that it can go.
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

    def _start_at(self, offset: Offset) -> None:
        """Move the first offset and delete what lies before it, with `_slow` held.

        Files go first and the structure follows, so that a full disk can be relieved: recovery
        takes segments that are missing in front as deleted.
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
        """Remove every batch, durably, and go on at `offset`, wherever that is.

        Of a log without batches nothing on disk is changed until it has one.
        """
        with self._slow:
            self._tell_cut(_FIRST_OFFSET)
            with self._lock:
                self._durability.refuse_if_failed()
                is_empty = all(segment.size_bytes == 0 for segment in self._chain.segments)
                if not is_empty:
                    empty = SyncPoint(offset, SegmentFacts(offset), NO_EPOCH_START)
                    self._durability.lower(empty)
                    self._is_saved = False
                self._chain.reset(offset)
                self._epochs = LeaderEpochs()
                self.log_start_offset = self.log_end_offset = offset
                self._durability.note_empty(offset)
            snapshots.delete_snapshots(
                self._directory, before=offset, behind=offset, calls=self._files.calls
            )
            self._sync()

    # -- read -------------------------------------------------------------------------------------

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

    # -- cleaning --------------------------------------------------------------------------------

    def roll(self) -> None:
        """Close the last segment, so that it can be cleaned."""
        with self._lock:
            self._durability.refuse_if_failed()
            if self._chain.active.size_bytes > 0:
                self._chain.roll(self.log_end_offset)

    def note_cleaned(self, cleaned: Cleaned) -> None:
        """A cleaner has come so far; durable with the next sync."""
        with self._lock:
            self.cleaned = cleaned
            self._is_saved = False

    def replace_segments(self, bases: Sequence[Offset], cleaned: SegmentFacts, token: str) -> bool:
        """Put the cleaned segment that is in the file of `token` in the place of those with these
        first offsets, durably. False if they are not all there any more: then nothing is done.

        A disk that refuses before the swap is decided leaves all as it was (StorageFailed).
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
                self._durability.unname(structure)
                swapping.decide(directory, bases[0], end_offset, token, calls)
            except OSError as error:
                raise StorageFailed(f"cannot clean {directory}: {error}") from error
            try:
                with self._files.held([segment.file for segment in old]), self._lock:
                    for segment in old:
                        segment.retire(self._files)
                    swapping.carry_out(directory, bases, end_offset, calls)
                    swapping.adopt_index(directory, bases[0], token, calls)
                    self._chain.replace(number, len(old), cleaned)
                calls.sync_directory(directory)
            except OSError as error:
                raise self._durability.fail(f"cannot swap in {directory}: {error}") from error
            self._sync()
        return True

    def rewrite_at(self, base_offset: Offset, position: int, data: bytes | memoryview) -> None:
        """Put bytes that are known to be right over damaged ones, durably."""
        segment = self.segment(base_offset)
        with self._slow:
            self._durability.refuse_if_failed()
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
        """Keep `content` beside the segments as the state at `offset`."""
        snapshots.save_snapshot(self._directory, offset, content, self._files.calls)

    def latest_snapshot(self, offset: Offset) -> tuple[Offset, bytes] | None:
        """The last sound snapshot at or before `offset`, with its offset."""
        return snapshots.latest_snapshot(self._directory, offset, self._files.calls)

    def prune_snapshots(self, keep: int) -> None:
        """Delete those before the log's start, and of the others all but the last `keep` and one
        at the start."""
        snapshots.delete_snapshots(
            self._directory,
            before=self.log_start_offset,
            behind=self.log_end_offset,
            keep=keep,
            calls=self._files.calls,
        )

    def close(self, clean: bool = True) -> None:
        """Give back the descriptors; if `clean`, sync first so that the next open reads nothing."""
        with self._slow:
            if clean and self._durability.failure is None:
                with self._lock:
                    self._chain.trim()
                self._sync()
            with self._lock:
                # Whoever syncs it late must not touch files that are another log's by then.
                self._chain.unsynced, self._chain.is_saved, self._is_saved = [], True, True
                self._chain.forget()
                self._durability.forget()
            if self.tail is not None:
                self.tail.close()
                self.tail = None

    def abandon(self) -> None:
        """Close it for good, since another log takes its place: nothing of it may come back."""
        with self._slow:
            self._tell_cut(_FIRST_OFFSET)
        self.close(clean=False)

    def delete(self) -> None:
        """Remove the log with its directory."""
        if self.tail is not None:
            self.tail.discard()
        self.close(clean=False)
        self._files.calls.remove_tree(self._directory)
