"""What Raft wants written and is not: because the gate is shut, or because the disk takes no more. No I/O.

A disk that is full may have room again, so what it refuses is kept and tried again; nothing of it was
promised to anyone. It stays small: a leader holds one batch, by which it finds out whether the others
have room, and refuses those behind it; of followers only those wait that the node cannot do without
(`Owner.waits_for_room`), and a follower is sent only so much before it answers.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from kafkaesque.broker.raft.ready import Ready
from kafkaesque.model.errors import StorageFailed
from kafkaesque.model.ids import Offset

TRIED_EVERY_TICKS: Final = 5


class Unwritten:
    """A Ready that is not on its way to the disk yet."""

    __slots__ = ("begun_entries", "journal_position", "ready")

    def __init__(self, ready: Ready) -> None:
        self.ready = ready
        self.begun_entries = -1
        """How many of its entries are written; -1 before it is begun."""
        self.journal_position = 0
        """Behind its term and vote."""


class Backlog:
    """Of one replica."""

    __slots__ = ("_refused_ticks", "held_end_offset", "readies", "refusal")

    def __init__(self) -> None:
        self.readies: deque[Unwritten] = deque()
        """With something to write, the first perhaps in part."""
        self.held_end_offset = Offset(0)
        """Behind the batches that were proposed and are not in the log."""
        self.refusal: StorageFailed | None = None
        """Why the disk did not take the first of it."""
        self._refused_ticks = 0

    def refused(self, error: StorageFailed) -> bool:
        """True if that is news."""
        is_new = self.refusal is None
        self.refusal = error
        return is_new

    def refuse_if_full(self) -> None:
        """Raises what the disk said: one that is held is enough."""
        if self.refusal is not None:
            raise StorageFailed(str(self.refusal))

    def tick(self) -> bool:
        """Whether what was refused is to be tried again."""
        self._refused_ticks = 0 if self.refusal is None else self._refused_ticks + 1
        return self._refused_ticks > 0 and self._refused_ticks % TRIED_EVERY_TICKS == 0
