"""The last batches of a log in memory, so that they can be made durable elsewhere than in its file.

A node with many logs writes what all of them appended into one journal and syncs that (docs/adr/0008).
The tail has the bytes for it, and stands between the log and that journal: whatever takes batches away
from the log is told to the journal first.

Threads: `append` and `take` belong to the log's owner; `is_current` may be asked from any, and any may
cut or close the log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from kafkaesque.model.ids import GroupId, Offset

TAIL_SIZE_BYTES_MAX: Final = 32 * 1024
"""A log that has more to sync is synced by itself: so large a write is worth a sync of its own."""


class TailBatch(NamedTuple):
    segment_base_offset: Offset
    end_offset: Offset
    data: bytes


class Share(NamedTuple):
    """What one log has to sync, as it was at one moment."""

    tail: UnsyncedTail
    cut_count: int
    batches: Sequence[TailBatch]
    end_offset: Offset
    size_bytes: int

    @property
    def is_current(self) -> bool:
        """Whether nothing was cut since, and the log is open."""
        return self.tail.cut_count == self.cut_count


class Tailed(Protocol):
    """What a journal needs of a log."""

    tail: UnsyncedTail | None

    @property
    def directory(self) -> Path: ...

    @property
    def log_end_offset(self) -> Offset: ...

    @property
    def file_synced_offset(self) -> Offset: ...

    def sync_if_open(self) -> None: ...

    def note_durable(self, share: Share) -> None: ...


class CutRecorder(Protocol):
    """The journal that may hold batches of the log."""

    def attach(self, group: GroupId, log: Tailed) -> None:
        """Hold batches of this log from now on. Blocking; raises StorageFailed."""

    def record_cut(self, tail: UnsyncedTail, offset: Offset) -> None:
        """Durably: batches that end behind `offset` are void. Calls the tail's `note_cut`.

        Blocking. Raises StorageFailed, and then nothing may be cut.
        """

    def record_deleted(self, tail: UnsyncedTail) -> None:
        """All batches are void, as durably as the disk allows. Blocking."""

    def record_closed(self, tail: UnsyncedTail) -> None:
        """The log takes no more calls. Calls the tail's `note_cut`, for what was taken before."""


class UnsyncedTail:
    """Batches one behind the other up to the end of the log; the first ones may be durable."""

    __slots__ = (
        "_batches",
        "_recorder",
        "_size_bytes",
        "_start_offset",
        "cut_count",
        "group",
        "note_durable",
    )

    def __init__(
        self,
        group: GroupId,
        end_offset: Offset,
        recorder: CutRecorder,
        note_durable: Callable[[Share], None],
    ) -> None:
        self.group = group
        self.cut_count = 0
        self.note_durable = note_durable
        """Tells the log that a journal holds a share of it."""
        self._recorder = recorder
        self._batches: deque[TailBatch] = deque()
        self._size_bytes = 0
        self._start_offset = end_offset
        """Of the first batch here; what the log has before it is not."""

    def append(
        self,
        data: bytes | bytearray | memoryview,
        segment_base_offset: Offset,
        end_offset: Offset,
        synced_offset: Offset,
    ) -> None:
        """The log has grown by a batch; what lies before `synced_offset` is not needed any more."""
        if self._batches and self._batches[0].end_offset <= synced_offset:
            self._drop_before(synced_offset)
        size_bytes = self._size_bytes + len(data)
        if size_bytes > TAIL_SIZE_BYTES_MAX:
            self._drop_all(end_offset)
            return
        self._size_bytes = size_bytes
        self._batches.append(TailBatch(segment_base_offset, end_offset, bytes(data)))

    def take(self, synced_offset: Offset) -> Share | None:
        """All that is behind `synced_offset`; None if not all of that is here."""
        cut_count = self.cut_count  # before the rest: a cut meanwhile makes the share void
        if self._start_offset > synced_offset:
            return None
        self._drop_before(synced_offset)
        batches = tuple(self._batches)
        end_offset = batches[-1].end_offset if batches else synced_offset
        return Share(self, cut_count, batches, end_offset, self._size_bytes)

    def cut(self, offset: Offset) -> None:
        """The log is about to lose the batches that end behind `offset`. Raises StorageFailed."""
        self._recorder.record_cut(self, offset)

    def note_cut(self, offset: Offset) -> None:
        """What was taken before is no longer true of the log."""
        self.cut_count += 1
        self._drop_all(offset)

    def discard(self) -> None:
        """The log is about to be deleted."""
        self._recorder.record_deleted(self)

    def follow(self, log: Tailed) -> None:
        """Another log has taken the place of this one, which is closed. Raises StorageFailed."""
        self._recorder.attach(self.group, log)

    def close(self) -> None:
        self._recorder.record_closed(self)

    def _drop_before(self, synced_offset: Offset) -> None:
        batches = self._batches
        while batches and batches[0].end_offset <= synced_offset:
            gone = batches.popleft()
            self._size_bytes -= len(gone.data)
            self._start_offset = gone.end_offset

    def _drop_all(self, end_offset: Offset) -> None:
        # Not emptied: another thread may close the log while a round takes from it.
        self._batches = deque()
        self._size_bytes = 0
        self._start_offset = end_offset
