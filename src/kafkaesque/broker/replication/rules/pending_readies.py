"""Readies that are not finished: the backlog waits to be written, sync tokens wait for a sync.

A Ready waits in the backlog while the gate is shut or the disk is full. A full disk may get room
again, so a refused write is retried; nothing of it was acknowledged. The backlog stays small: a
leader holds one batch, to find out whether the others have room, and rejects the following ones.
Only followers that the node depends on wait (`StateMachine.waits_for_room`), and a follower is sent
only a bounded amount before it answers.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from kafkaesque.broker.raft.ready import Ready
from kafkaesque.broker.raft.types import SyncToken
from kafkaesque.model.errors import StorageFailed
from kafkaesque.model.ids import Offset

TRIED_EVERY_TICKS: Final = 5


class Unwritten:
    """A Ready that is not completely written."""

    __slots__ = ("begun_entries", "journal_position", "ready")

    def __init__(self, ready: Ready) -> None:
        self.ready = ready
        self.begun_entries = -1
        """How many of its entries are written; -1 before the first part."""
        self.journal_position = 0
        """The journal position after its term and vote."""


class Backlog:
    """The unwritten Readies of one replica."""

    __slots__ = ("_refused_ticks", "held_end_offset", "readies", "refusal")

    def __init__(self) -> None:
        self.readies: deque[Unwritten] = deque()
        """Oldest first. The first may be partly written."""
        self.held_end_offset = Offset(0)
        """The end of the batches that are proposed but not in the log."""
        self.refusal: StorageFailed | None = None
        """The error of the first refused write; None while the disk accepts writes."""
        self._refused_ticks = 0

    def refused(self, error: StorageFailed) -> bool:
        """Returns True if the disk was not refusing before."""
        is_new = self.refusal is None
        self.refusal = error
        return is_new

    def refuse_if_full(self) -> None:
        """Raise the disk's error while a batch is held already."""
        if self.refusal is not None:
            raise StorageFailed(str(self.refusal))

    def tick(self) -> bool:
        """Whether it is time to retry the refused write."""
        self._refused_ticks = 0 if self.refusal is None else self._refused_ticks + 1
        return self._refused_ticks > 0 and self._refused_ticks % TRIED_EVERY_TICKS == 0


class _Pending(NamedTuple):
    """The positions that must be durable before `token` is reported to Raft."""

    token: SyncToken
    journal_position: int
    end_offset: Offset


class SyncTokens:
    """The sync tokens of one replica, oldest first."""

    __slots__ = ("_oldest", "_pending", "_stuck_ticks")

    def __init__(self) -> None:
        self._pending: deque[_Pending] = deque()
        self._oldest: SyncToken | None = None
        """The oldest token at the last tick."""
        self._stuck_ticks = 0

    def add(self, token: SyncToken, journal_position: int, end_offset: Offset) -> None:
        self._pending.append(_Pending(token, journal_position, end_offset))

    def take(self, journal_position: int, synced_offset: Offset) -> SyncToken | None:
        """The newest token that is durable together with all before it; None if there is none."""
        token = None
        while self._pending:
            first = self._pending[0]
            if first.journal_position > journal_position or first.end_offset > synced_offset:
                break
            token = self._pending.popleft().token
        return token

    def clip(self, end_offset: Offset) -> None:
        """The log was truncated: no token may wait for an offset that may never be reached again."""
        self._pending = deque(
            pending._replace(end_offset=min(pending.end_offset, end_offset))
            for pending in self._pending
        )

    def waits_for_journal(self, journal_position: int) -> bool:
        """Whether any token needs more of the journal than is synced. Not only the newest may: a vote
        can precede entries that need less of the journal."""
        return any(pending.journal_position > journal_position for pending in self._pending)

    def tick(self) -> int:
        """For how many ticks the oldest token has been waiting."""
        oldest = self._pending[0].token if self._pending else None
        is_stuck = oldest is not None and oldest == self._oldest
        self._stuck_ticks = self._stuck_ticks + 1 if is_stuck else 0
        self._oldest = oldest
        return self._stuck_ticks
