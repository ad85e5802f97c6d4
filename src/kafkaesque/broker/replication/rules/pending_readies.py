"""What Raft wants written and is not: because the gate is shut, or because the disk takes no more. No I/O.

A disk that is full may have room again, so what it refuses is kept and tried again; nothing of it was
promised to anyone. It stays small: a leader holds one batch, by which it finds out whether the others
have room, and refuses those behind it; of followers only those wait that the node cannot do without
(`Owner.waits_for_room`), and a follower is sent only so much before it answers.
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


class _Pending(NamedTuple):
    """What must be durable before Raft hears of `token`."""

    token: SyncToken
    journal_position: int
    end_offset: Offset


class SyncTokens:
    """Of one replica, oldest first."""

    __slots__ = ("_oldest", "_pending", "_stuck_ticks")

    def __init__(self) -> None:
        self._pending: deque[_Pending] = deque()
        self._oldest: SyncToken | None = None
        """What waited longest at the last tick."""
        self._stuck_ticks = 0

    def add(self, token: SyncToken, journal_position: int, end_offset: Offset) -> None:
        self._pending.append(_Pending(token, journal_position, end_offset))

    def take(self, journal_position: int, synced_offset: Offset) -> SyncToken | None:
        """The newest token of which all is durable, with all before it; None if there is none."""
        token = None
        while self._pending:
            first = self._pending[0]
            if first.journal_position > journal_position or first.end_offset > synced_offset:
                break
            token = self._pending.popleft().token
        return token

    def clip(self, end_offset: Offset) -> None:
        """The log was cut: what is gone need not be synced, and a token must not wait for an offset
        that may never be reached again."""
        self._pending = deque(
            pending._replace(end_offset=min(pending.end_offset, end_offset))
            for pending in self._pending
        )

    def waits_for_journal(self, journal_position: int) -> bool:
        """Whether something was saved that lies behind what is synced: not always by the newest, for
        a vote may come before entries that need less of the journal."""
        return any(pending.journal_position > journal_position for pending in self._pending)

    def tick(self) -> int:
        """For how many ticks the oldest token has been waiting."""
        oldest = self._pending[0].token if self._pending else None
        is_stuck = oldest is not None and oldest == self._oldest
        self._stuck_ticks = self._stuck_ticks + 1 if is_stuck else 0
        self._oldest = oldest
        return self._stuck_ticks
