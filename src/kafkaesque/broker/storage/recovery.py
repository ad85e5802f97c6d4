"""Opens a log, recovering it after a crash.

After a clean stop the structure and the sync point describe the whole log. After a crash only the
part after the sync point is read: intact batches there are kept, and the log is cut at the first
damaged or torn one. Nothing before the sync point is ever cut or deleted; damage there is left in
place and reported to readers.

The sync point is written after every sync but not itself synced, so a power cut may bring back an
old one. The structure is synced: segments that it lists as closed were durable, wherever the sync
point is, unless they were about to be cut off, which their sizes show.

Recovery rewrites the batches that it keeps. The process that died may have seen their sync fail. The
page cache then holds data that the disk never got and counts it as clean, so the next sync would do
nothing and report success.
"""

from __future__ import annotations

import contextlib
import logging
from typing import Final, NamedTuple

from kafkaesque.broker.storage import snapshots, swapping
from kafkaesque.broker.storage.checkpoint import (
    SYNC_POINT_NAME,
    SYNC_POINT_SIZE_BYTES,
    Cleaned,
    LogStructure,
    SyncPoint,
    decode_sync_point,
    load_structure,
)
from kafkaesque.broker.storage.config import LogConfig
from kafkaesque.broker.storage.durable_state import TEMPORARY_SUFFIX, StateDamaged
from kafkaesque.broker.storage.open_files import OpenFiles, SystemCalls
from kafkaesque.broker.storage.rules.epochs import NO_EPOCH_START, LeaderEpochs
from kafkaesque.broker.storage.rules.segment_facts import SegmentFacts
from kafkaesque.broker.storage.scanning import iter_verified
from kafkaesque.broker.storage.segment import OFFSET_DELTA_MAX, Segment
from kafkaesque.model.errors import CorruptMessage
from kafkaesque.model.ids import Offset

_log = logging.getLogger("kafkaesque.broker.storage")

_LOG_SUFFIX: Final = ".log"
_FIRST_OFFSET: Final = Offset(0)


class Recovered(NamedTuple):
    """The state of an opened log. There is always a segment; the last one is the active one."""

    segments: list[Segment]
    log_start_offset: Offset
    log_end_offset: Offset
    synced_offset: Offset
    epochs: LeaderEpochs
    is_new: bool
    """The log was never synced, so even its directory entry may not be durable."""
    is_changed: bool
    """The structure on disk differs from the recovered one."""
    cleaned: Cleaned = Cleaned()


def recover(directory: str, config: LogConfig, files: OpenFiles, *, clean: bool) -> Recovered:
    """Opens the log in `directory`, creating it if absent."""
    point = _load_sync_point(directory, files.calls)
    structure = _load_structure(directory, point, files.calls)
    if clean and point is not None and structure is not None:
        recovered = _open_clean(directory, structure, point, files)
        if recovered is not None:
            return recovered
        _log.warning("%s was not closed cleanly, although the node was; recovering it", directory)
    if point is None and not files.calls.exists(directory):
        files.calls.make_directories(directory)
        segment = Segment(directory, SegmentFacts(_FIRST_OFFSET))
        start = _FIRST_OFFSET
        return Recovered([segment], start, start, start, LeaderEpochs(), True, False)
    return _LogRecovery(directory, config, files).run(structure, point)


def _load_sync_point(directory: str, calls: SystemCalls) -> SyncPoint | None:
    try:
        fd = calls.open(f"{directory}/{SYNC_POINT_NAME}", create=False)
    except FileNotFoundError:
        return None
    try:
        return decode_sync_point(calls.pread(fd, SYNC_POINT_SIZE_BYTES + 1, 0))
    finally:
        calls.close(fd)


def _load_structure(
    directory: str, point: SyncPoint | None, calls: SystemCalls
) -> LogStructure | None:
    """Loads the structure; None if it is damaged or lost.

    A log has no structure file as long as it has a single segment and a single epoch.
    """
    try:
        structure = load_structure(directory, calls)
    except StateDamaged as error:
        _log.error("%s; rebuilding the structure from the segments", error)
        return None
    if structure is not None:
        return structure
    if point is not None and (point.segment.base_offset > 0 or point.latest_epoch[1] > 0):
        _log.error("%s has lost its structure; rebuilding it from the segments", directory)
        return None
    return LogStructure()


def _open_clean(
    directory: str, structure: LogStructure, point: SyncPoint, files: OpenFiles
) -> Recovered | None:
    """Opens the log as structure and sync point describe it; None if they contradict the files."""
    active = Segment(directory, point.segment)
    is_stale = any(facts.base_offset >= active.base_offset for facts in structure.closed)
    if is_stale or files.size_bytes(active.file) != active.size_bytes:
        return None
    closed = [facts for facts in structure.closed if facts.base_offset < active.base_offset]
    segments = [Segment(directory, facts) for facts in closed]
    segments.append(active)
    epochs = LeaderEpochs(structure.epochs)
    epochs.assign(*point.latest_epoch)
    start = max(structure.log_start_offset, segments[0].base_offset)
    end = point.end_offset
    return Recovered(segments, start, end, end, epochs, False, False, structure.cleaned)


class _LogRecovery:
    """One recovery of one log after a crash."""

    def __init__(self, directory: str, config: LogConfig, files: OpenFiles) -> None:
        self._directory = directory
        self._config = config
        self._files = files
        self._segments: list[Segment] = []
        self._epochs = LeaderEpochs()
        self._log_end_offset = _FIRST_OFFSET
        self._is_changed = False

    def run(self, structure: LogStructure | None, point: SyncPoint | None) -> Recovered:
        """`structure` is None if damaged or lost; `point` is None if absent or damaged."""
        known = structure or LogStructure()
        is_swapped = bool(swapping.finish_committed(self._directory, self._files.calls))
        bases = self._list_bases()
        is_new = point is None
        self._is_changed = structure is None or (is_new and bool(bases)) or is_swapped
        if point is None or self._is_stale(point, known):
            point = self._derive_sync_point(known, bases)
        self._log_end_offset = point.end_offset
        self._add_closed(known, point, bases)
        active = self._add_active(point)
        self._epochs = LeaderEpochs(known.epochs)
        self._epochs.drop_from(point.end_offset)
        if structure is None:
            self._find_epochs()
        self._epochs.assign(*point.latest_epoch)
        self._recover_tail(active, [base for base in bases if base > point.segment.base_offset])
        start = max(known.log_start_offset, *(s.base_offset for s in self._segments[:1]), 0)
        if not self._segments or start > self._log_end_offset:
            self._log_end_offset = Offset(max(start, self._log_end_offset))
            start = self._log_end_offset
            self._segments.append(Segment(self._directory, SegmentFacts(start)))
        end = self._log_end_offset
        snapshots.delete_snapshots(
            self._directory, before=_FIRST_OFFSET, after=end, calls=self._files.calls
        )
        synced = min(point.end_offset, end)
        return Recovered(
            *(self._segments, Offset(start), end, synced, self._epochs, is_new, self._is_changed),
            known.cleaned,
        )

    def _list_bases(self) -> list[Offset]:
        """The base offsets of the segment files, ascending. Deletes temporary files of a crash."""
        bases = []
        for name in self._files.calls.list_names(self._directory):
            stem = name.removesuffix(_LOG_SUFFIX)
            if name.endswith(TEMPORARY_SUFFIX):
                self._files.calls.unlink(f"{self._directory}/{name}")
            elif stem != name and stem.isdecimal():
                bases.append(Offset(int(stem)))
        return sorted(bases)

    def _is_stale(self, point: SyncPoint, structure: LogStructure) -> bool:
        """Whether the structure describes durable segments beyond the sync point."""
        segments = [
            Segment(self._directory, facts)
            for facts in structure.closed
            if facts.base_offset >= point.segment.base_offset
        ]
        return bool(segments) and all(
            self._files.size_bytes(segment.file) == segment.size_bytes for segment in segments
        )

    def _derive_sync_point(self, structure: LogStructure, bases: list[Offset]) -> SyncPoint:
        """A sync point at the end of the structure, whose segments were durable before it was saved."""
        if not structure.closed:
            base = bases[0] if bases else structure.log_start_offset
            return SyncPoint(base, SegmentFacts(base), NO_EPOCH_START)
        facts = structure.closed[-1]
        following = [base for base in bases if base > facts.base_offset]
        if following:
            return SyncPoint(following[0], facts, NO_EPOCH_START)
        end_offset = facts.base_offset
        with contextlib.suppress(CorruptMessage, FileNotFoundError):
            for _, header in Segment(self._directory, facts).headers(self._files, 0):
                end_offset = header.next_offset
        return SyncPoint(end_offset, facts, NO_EPOCH_START)

    def _add_closed(self, known: LogStructure, point: SyncPoint, bases: list[Offset]) -> None:
        """Adds the segments before the one with the sync point. None of them is cut."""
        described = {facts.base_offset: facts for facts in known.closed}
        present = [base for base in bases if base < point.segment.base_offset]
        ends = [*present[1:], point.segment.base_offset]
        for base, following in zip(present, ends, strict=False):
            if base in described:
                self._segments.append(Segment(self._directory, described[base]))
            elif following <= known.log_start_offset:
                _log.info("%s/%020d.log was deleted before the crash", self._directory, base)
                Segment(self._directory, SegmentFacts(base)).unlink(self._files)
                self._is_changed = True
            else:
                self._segments.append(self._rebuild_unknown(base))
        missing = {base for base in described if base < point.segment.base_offset} - set(present)
        self._is_changed |= bool(missing)
        for base in sorted(missing):
            # Segments missing at the front were deleted by retention just before the crash.
            if present and base > present[0]:
                _log.error("%s/%020d.log is missing", self._directory, base)
                self._segments.append(Segment(self._directory, described[base]))
        self._segments.sort(key=lambda segment: segment.base_offset)

    def _rebuild_unknown(self, base: Offset) -> Segment:
        """A segment that the structure does not list, with metadata from its headers."""
        segment = Segment(self._directory, SegmentFacts(base))
        segment.size_bytes = self._files.size_bytes(segment.file)
        _log.warning("%s is not in the log's structure; reading it", segment.file.path)
        segment.rebuild(self._files, self._config.index_interval_bytes)
        segment.is_synced = False
        self._is_changed = True
        return segment

    def _add_active(self, point: SyncPoint) -> Segment | None:
        """Adds the segment with the sync point, as of then; None if it was deleted since."""
        segment = Segment(self._directory, point.segment)
        size_bytes = self._files.size_bytes(segment.file)
        is_missing = not self._files.calls.exists(segment.file.path)
        if is_missing and segment.size_bytes > 0:
            if not self._segments:
                _log.warning("%s was deleted; the log starts after it", segment.file.path)
                return None
            _log.error("%s is missing", segment.file.path)
        elif size_bytes < segment.size_bytes:
            text = f"the file ends {segment.size_bytes - size_bytes} bytes before the sync point"
            _log.error("%s", segment.damaged(size_bytes, text))
        self._segments.append(segment)
        return segment

    def _find_epochs(self) -> None:
        """Reads the leader epochs before the sync point from the headers."""
        for segment in self._segments:
            with contextlib.suppress(CorruptMessage, FileNotFoundError):
                for _, header in segment.headers(self._files, 0):
                    self._epochs.assign(header.leader_epoch, header.base_offset)

    def _recover_tail(self, active: Segment | None, later: list[Offset]) -> None:
        """Keeps the intact batches after the sync point; cuts the log at the first damaged one."""
        whole = active is None or self._scan(active)
        for base in later:
            segment = Segment(self._directory, SegmentFacts(base))
            self._is_changed = True
            if whole and base >= self._log_end_offset:
                whole = self._scan(segment)
                if segment.size_bytes > 0:
                    self._segments.append(segment)
                    continue
            _log.warning("%s follows a torn batch: deleted", segment.file.path)
            segment.unlink(self._files)

    def _scan(self, segment: Segment) -> bool:
        """Recovers the batches after the segment's known size; False if the rest was cut."""
        size_bytes = self._files.size_bytes(segment.file)
        if size_bytes <= segment.size_bytes:
            return True
        segment.is_synced = False
        self._is_changed = True
        known_size_bytes = segment.size_bytes
        reason = self._recover_batches(segment, size_bytes)
        if reason:
            if not self._is_preallocated(segment, size_bytes):
                _log.warning(
                    "%s: cut %d bytes of a torn tail at position %d: %s",
                    segment.file.path,
                    size_bytes - segment.size_bytes,
                    segment.size_bytes,
                    reason,
                )
            segment.cut(self._files, segment.size_bytes)
        segment.rewrite_in_place(self._files, known_size_bytes)
        return not reason

    def _is_preallocated(self, segment: Segment, size_bytes: int) -> bool:
        """Whether everything after the batches is preallocated zeros."""
        rest_bytes, preallocate_bytes = (
            size_bytes - segment.size_bytes,
            self._config.preallocate_bytes,
        )
        if rest_bytes > 2 * preallocate_bytes or size_bytes % preallocate_bytes:
            return False
        return not any(self._files.pread(segment.file, rest_bytes, segment.size_bytes))

    def _recover_batches(self, segment: Segment, size_bytes: int) -> str:
        """Adds the intact batches after the segment's known size; returns why it stopped, or ""."""
        modified_ms = self._files.modified_ms(segment.file)
        try:
            for position, header in iter_verified(
                segment.reader(self._files), segment.size_bytes, size_bytes
            ):
                if not self._log_end_offset <= header.base_offset or (
                    header.last_offset - segment.base_offset > OFFSET_DELTA_MAX
                ):
                    raise CorruptMessage(f"offset {header.base_offset} is out of order", position)
                segment.note_batch(header, modified_ms, self._config.index_interval_bytes)
                self._epochs.assign(header.leader_epoch, header.base_offset)
                self._log_end_offset = header.next_offset
        except CorruptMessage as error:
            return str(error.args[0])
        return ""
