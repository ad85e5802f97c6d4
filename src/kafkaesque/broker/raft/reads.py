"""Linearizable reads: each waits for a round of heartbeats (thesis 6.4).

A read may be served at the commit index of the moment of the request, once a majority has answered a
heartbeat sent after that moment: then no other node was leader in between. Reads share rounds. The
ticks at which rounds were sent also determine the leader's lease.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from kafkaesque.broker.raft.ready import ReadReady
from kafkaesque.broker.raft.types import NO_ROUND, LogIndex, Round
from kafkaesque.model.errors import check


class _PendingRead(NamedTuple):
    round: Round
    """Any round from this one on confirms the read."""
    read: ReadReady


class Reads:
    """The reads and heartbeat rounds of one leadership."""

    __slots__ = ("_confirmed_tick", "_early", "_sent_ticks", "_waiting", "confirmed_round", "round")

    def __init__(self) -> None:
        self.round = NO_ROUND
        """The newest round sent. confirmed_round <= round"""
        self.confirmed_round = NO_ROUND
        """The newest round answered by a majority."""
        self._sent_ticks: deque[tuple[Round, int]] = deque()
        """When the unconfirmed rounds were sent; rounds ascend."""
        self._confirmed_tick: int | None = None
        """When `confirmed_round` was sent; None if that was before the group quiesced."""
        self._waiting: deque[_PendingRead] = deque()
        """Rounds ascend; all are above confirmed_round."""
        self._early: list[object] = []
        """Requested before an entry of this term was committed: until then a leader cannot tell
        which entries are committed (Raft 8)."""

    def __len__(self) -> int:
        return len(self._waiting) + len(self._early)

    def add(self, context: object, commit_index: LogIndex) -> None:
        self._waiting.append(_PendingRead(Round(self.round + 1), ReadReady(context, commit_index)))

    def add_early(self, context: object) -> None:
        self._early.append(context)

    def term_is_confirmed(self, commit_index: LogIndex) -> None:
        early, self._early = self._early, []
        for context in early:
            self.add(context, commit_index)

    @property
    def needs_round(self) -> bool:
        """Reads start one round at a time; those that arrive meanwhile share the next. If a round is
        lost, the regular heartbeat replaces it."""
        return bool(self._waiting) and self._waiting[0].round > self.round

    def begin_round(self, tick: int) -> Round:
        self.round = Round(self.round + 1)
        self._sent_ticks.append((self.round, tick))
        return self.round

    def confirm(self, round_: Round) -> list[ReadReady]:
        """A majority answered `round_`. Returns the reads that may be served now."""
        check(round_ <= self.round, "an answer to a round that was never sent")
        if round_ <= self.confirmed_round:
            return []
        self.confirmed_round = round_
        while self._sent_ticks and self._sent_ticks[0][0] <= round_:
            self._confirmed_tick = self._sent_ticks.popleft()[1]
        served: list[ReadReady] = []
        while self._waiting and self._waiting[0].round <= round_:
            served.append(self._waiting.popleft().read)
        return served

    def lease_age_ticks(self, tick: int) -> int | None:
        """Ticks since the sending of the newest round that a majority answered."""
        return None if self._confirmed_tick is None else tick - self._confirmed_tick

    def drop_lease(self) -> None:
        """Ticks did not advance while the group was quiesced: earlier rounds prove nothing now."""
        self._sent_ticks.clear()
        self._confirmed_tick = None
