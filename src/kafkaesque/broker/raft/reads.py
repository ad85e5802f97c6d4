"""Linearizable reads: which waiting read has which round of heartbeats behind it (thesis 6.4).

A read may be served at the commit index of the moment it was asked for, once a majority has
answered a heartbeat that was sent after that moment: then nobody else was leader in between. Reads
share rounds. The ticks at which rounds were sent also give the leader its lease.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from kafkaesque.broker.raft.ready import ReadReady
from kafkaesque.broker.raft.types import NO_ROUND, LogIndex, Round
from kafkaesque.model.errors import check


class _Waiting(NamedTuple):
    round: Round
    """Any round from this one on confirms the read."""
    read: ReadReady


class Reads:
    """Of one leadership."""

    __slots__ = ("_confirmed_tick", "_early", "_sent_ticks", "_waiting", "confirmed_round", "round")

    def __init__(self) -> None:
        self.round = NO_ROUND
        """The newest round sent. confirmed_round <= round"""
        self.confirmed_round = NO_ROUND
        """The newest round answered by a majority."""
        self._sent_ticks: deque[tuple[Round, int]] = deque()
        """When the unconfirmed rounds were sent; rounds ascend."""
        self._confirmed_tick: int | None = None
        """When `confirmed_round` was sent; None when that was before the group slept."""
        self._waiting: deque[_Waiting] = deque()
        """Rounds ascend; all are above confirmed_round."""
        self._early: list[object] = []
        """Asked for before an entry of this term was committed: until then a leader does not know
        what is committed (Raft 8)."""

    def __len__(self) -> int:
        return len(self._waiting) + len(self._early)

    def ask(self, context: object, commit_index: LogIndex) -> None:
        self._waiting.append(_Waiting(Round(self.round + 1), ReadReady(context, commit_index)))

    def ask_early(self, context: object) -> None:
        self._early.append(context)

    def term_is_confirmed(self, commit_index: LogIndex) -> None:
        early, self._early = self._early, []
        for context in early:
            self.ask(context, commit_index)

    @property
    def wants_round(self) -> bool:
        """One round at a time for reads; those that come meanwhile share the next. The regular
        heartbeat follows on a lost one."""
        return bool(self._waiting) and self._waiting[0].round > self.round

    def begin_round(self, tick: int) -> Round:
        self.round = Round(self.round + 1)
        self._sent_ticks.append((self.round, tick))
        return self.round

    def confirm(self, round_: Round) -> list[ReadReady]:
        """A majority answered `round_`: the reads that may be served now."""
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
        """Since the newest round that a majority answered was sent."""
        return None if self._confirmed_tick is None else tick - self._confirmed_tick

    def drop_lease(self) -> None:
        """Ticks stood still while the group slept: no round of before says anything about now."""
        self._sent_ticks.clear()
        self._confirmed_tick = None
