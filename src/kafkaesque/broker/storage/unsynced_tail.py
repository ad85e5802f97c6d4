"""The unsynced batches at the end of a log, kept in memory for the node's sync journal.

A node with many logs writes the new batches of all logs to one journal and syncs only that
(docs/adr/0008). The tail supplies the bytes. It also connects the log to the journal: every removal
of batches is recorded in the journal before the log changes.

Threads: `append` and `take` run on the owner's thread. `is_current` may be read, and the log cut or
closed, on any thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from kafkaesque.model.ids import GroupId, Offset

TAIL_SIZE_BYTES_MAX: Final = 32 * 1024
"""A log with more unsynced bytes is synced by itself: a large write is worth its own sync."""


class TailBatch(NamedTuple):
    segment_base_offset: Offset
    end_offset: Offset
    data: bytes


class Tailed(Protocol):
    """The part of `Log` that a journal uses."""

    @property
    def tail(self) -> UnsyncedTail | None: ...

    @property
    def directory(self) -> Path: ...

    @property
    def log_end_offset(self) -> Offset: ...

    @property
    def file_synced_offset(self) -> Offset: ...

    def attach_tail(self, group: GroupId, recorder: CutRecorder) -> None: ...

    def sync_if_open(self) -> None: ...


class CutRecorder(Protocol):
    """The journal that may hold batches of the log."""

    def attach(self, group: GroupId, log: Tailed) -> None:
        """Starts to hold batches of this log. Blocking; raises StorageFailed."""

    def record_cut(self, tail: UnsyncedTail, offset: Offset) -> None:
        """Records durably that batches ending after `offset` are void. Calls the tail's `note_cut`.

        Blocking. Raises StorageFailed; the log must not be cut then.
        """

    def record_deleted(self, tail: UnsyncedTail) -> None:
        """Records that all batches are void, as durably as the disk allows. Blocking."""

    def record_closed(self, tail: UnsyncedTail) -> None:
        """Detaches a closed log. Calls the tail's `note_cut`, which voids earlier shares."""


class UnsyncedTail:
    """Consecutive batches up to the end of the log; the first ones may be durable already."""

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
        """The log's `note_durable`, called when the journal holds a share."""
        self._recorder = recorder
        self._batches: deque[TailBatch] = deque()
        self._size_bytes = 0
        self._start_offset = end_offset
        """Offset of the first batch in the tail."""

    def append(
        self,
        data: bytes | bytearray | memoryview,
        segment_base_offset: Offset,
        end_offset: Offset,
        synced_offset: Offset,
    ) -> None:
        """Adds a batch appended to the log and drops the batches before `synced_offset`."""
        if self._batches and self._batches[0].end_offset <= synced_offset:
            self._drop_before(synced_offset)
        size_bytes = self._size_bytes + len(data)
        if size_bytes > TAIL_SIZE_BYTES_MAX:
            self._drop_all(end_offset)
            return
        self._size_bytes = size_bytes
        self._batches.append(TailBatch(segment_base_offset, end_offset, bytes(data)))

    def take(self, synced_offset: Offset) -> Share | None:
        """Returns the batches after `synced_offset`; None if the tail does not hold all of them."""
        cut_count = self.cut_count  # read first: a concurrent cut then voids the share
        if self._start_offset > synced_offset:
            return None
        self._drop_before(synced_offset)
        batches = tuple(self._batches)
        end_offset = batches[-1].end_offset if batches else synced_offset
        return Share(self, cut_count, batches, end_offset, self._size_bytes)

    def cut(self, offset: Offset) -> None:
        """Records that the log is about to lose the batches that end after `offset`.

        Raises StorageFailed.
        """
        self._recorder.record_cut(self, offset)

    def note_cut(self, offset: Offset) -> None:
        """Voids all shares taken before."""
        self.cut_count += 1
        self._drop_all(offset)

    def discard(self) -> None:
        """Records that the log is about to be deleted."""
        self._recorder.record_deleted(self)

    def follow(self, log: Tailed) -> None:
        """Attaches the log that replaced this closed one. Raises StorageFailed."""
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
        # A new deque instead of clear(): another thread may close the log during `take`.
        self._batches = deque()
        self._size_bytes = 0
        self._start_offset = end_offset


class Share(NamedTuple):
    """The unsynced batches of one log at one moment, for a round of the sync journal."""

    tail: UnsyncedTail
    cut_count: int
    batches: Sequence[TailBatch]
    end_offset: Offset
    size_bytes: int

    @property
    def is_current(self) -> bool:
        """False if the log was cut or closed since."""
        return self.tail.cut_count == self.cut_count
