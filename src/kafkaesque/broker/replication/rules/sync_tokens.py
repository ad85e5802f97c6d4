"""Readies that are written and wait for a sync."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from kafkaesque.broker.raft.types import SyncToken
from kafkaesque.model.ids import Offset


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
