"""Readies that wait for a sync, and the sync that each needs."""

from __future__ import annotations

from kafkaesque.broker.raft.types import SyncToken
from kafkaesque.broker.replication.rules.pending_readies import SyncTokens
from kafkaesque.model.ids import Offset


def test_vote_before_entries_that_need_less_of_the_journal_is_waited_for() -> None:
    """Otherwise the sync that it needs is never requested, and everything after it waits for ever
    (seed 3838)."""
    tokens = SyncTokens()
    tokens.add(SyncToken(1), journal_position=349, end_offset=Offset(0))
    tokens.add(SyncToken(2), journal_position=297, end_offset=Offset(398))
    assert tokens.take(330, Offset(398)) is None
    assert tokens.waits_for_journal(330)
    assert not tokens.waits_for_journal(349)
    assert tokens.take(349, Offset(398)) == SyncToken(2)
