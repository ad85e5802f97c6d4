"""Tracks which Readies are being written, and what is durable for certain.

Confirming a token confirms all before it, because one group's writes reach the disk in order. If a
later Ready truncates entries, the earlier writes are clipped, so that their late confirmation cannot
cover other entries at the same indexes.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from kafkaesque.broker.raft.types import NO_INDEX, HardState, LogIndex, SyncToken
from kafkaesque.model.errors import check


@dataclass(slots=True)
class PendingWrite:
    """One Ready that the driver is persisting."""

    token: SyncToken
    hard_state: HardState | None
    snapshot_index: LogIndex
    """0 without a snapshot."""
    last_index: LogIndex
    """The last entry that this write and those before it make durable; only ever lowered."""


class WriteTracker:
    """The writes in progress and the hard state on disk."""

    __slots__ = ("_next_token", "_writes", "hard_state")

    def __init__(self, hard_state: HardState) -> None:
        self.hard_state = hard_state
        """On disk for certain. Its term <= the node's term."""
        self._writes: deque[PendingWrite] = deque()
        """Oldest first; tokens ascend."""
        self._next_token = 1

    def __len__(self) -> int:
        return len(self._writes)

    def begin(
        self, hard_state: HardState | None, snapshot_index: LogIndex, last_index: LogIndex
    ) -> SyncToken:
        token = SyncToken(self._next_token)
        self._next_token += 1
        self._writes.append(PendingWrite(token, hard_state, snapshot_index, last_index))
        return token

    def clip(self, last_index: LogIndex) -> None:
        """Entries above `last_index` were replaced: no write in progress makes them durable."""
        for write in self._writes:
            write.last_index = min(write.last_index, last_index)

    def forget_log(self) -> None:
        """A snapshot replaces the whole log."""
        for write in self._writes:
            write.last_index = NO_INDEX
            write.snapshot_index = NO_INDEX

    def confirm(self, token: SyncToken) -> list[PendingWrite]:
        """Returns the writes that became durable, in order. A token confirmed before changes nothing."""
        check(token < self._next_token, f"token {token} was never issued")
        confirmed: list[PendingWrite] = []
        while self._writes and self._writes[0].token <= token:
            write = self._writes.popleft()
            if write.hard_state is not None:
                self.hard_state = write.hard_state
            confirmed.append(write)
        return confirmed
