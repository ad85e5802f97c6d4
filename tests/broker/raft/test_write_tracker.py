from __future__ import annotations

import pytest

from kafkaesque.broker.raft.types import FRESH, NO_INDEX, HardState, LogIndex, SyncToken, Term
from kafkaesque.broker.raft.write_tracker import WriteTracker
from kafkaesque.model.errors import InvariantBroken


def test_token_confirms_all_before_it() -> None:
    durability = WriteTracker(FRESH)
    for number in (1, 2, 3):
        durability.begin(HardState(Term(number), None), NO_INDEX, LogIndex(number))
    confirmed = durability.confirm(SyncToken(2))
    assert [write.last_index for write in confirmed] == [1, 2]
    assert durability.hard_state.term == 2
    assert len(durability) == 1


def test_token_confirmed_twice_changes_nothing() -> None:
    durability = WriteTracker(FRESH)
    token = durability.begin(HardState(Term(1), None), NO_INDEX, LogIndex(1))
    durability.begin(HardState(Term(2), None), NO_INDEX, LogIndex(1))
    durability.confirm(token)
    assert durability.confirm(token) == []
    assert durability.hard_state.term == 1


def test_token_that_was_never_issued_stops_the_node() -> None:
    with pytest.raises(InvariantBroken, match="never issued"):
        WriteTracker(FRESH).confirm(SyncToken(1))


def test_write_does_not_confirm_entries_that_were_replaced() -> None:
    durability = WriteTracker(FRESH)
    durability.begin(None, NO_INDEX, LogIndex(7))
    durability.clip(LogIndex(4))
    token = durability.begin(None, NO_INDEX, LogIndex(8))
    assert [write.last_index for write in durability.confirm(token)] == [4, 8]


def test_write_of_a_log_that_a_snapshot_replaced_confirms_nothing() -> None:
    durability = WriteTracker(FRESH)
    durability.begin(None, LogIndex(3), LogIndex(7))
    durability.forget_log()
    token = durability.begin(None, LogIndex(20), LogIndex(20))
    writes = durability.confirm(token)
    assert [(write.snapshot_index, write.last_index) for write in writes] == [(0, 0), (20, 20)]
