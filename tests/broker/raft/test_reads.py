from __future__ import annotations

import pytest

from kafkaesque.broker.raft.reads import Reads
from kafkaesque.broker.raft.ready import ReadReady
from kafkaesque.broker.raft.types import LogIndex, Round
from kafkaesque.model.errors import InvariantBroken


def test_read_is_served_by_a_round_that_began_after_it() -> None:
    reads = Reads()
    before = reads.begin_round(tick=1)
    reads.add("r", LogIndex(7))
    assert reads.confirm(before) == []
    after = reads.begin_round(tick=2)
    assert reads.confirm(after) == [ReadReady("r", LogIndex(7))]
    assert len(reads) == 0


def test_reads_share_rounds_one_at_a_time() -> None:
    reads = Reads()
    reads.add("a", LogIndex(1))
    assert reads.needs_round
    reads.begin_round(tick=1)
    reads.add("b", LogIndex(2))
    reads.add("c", LogIndex(3))
    assert not reads.needs_round
    assert [read.context for read in reads.confirm(Round(1))] == ["a"]
    assert reads.needs_round
    reads.begin_round(tick=1)
    assert [read.context for read in reads.confirm(Round(2))] == ["b", "c"]


def test_early_read_gets_the_index_of_the_first_commit_of_the_term() -> None:
    reads = Reads()
    reads.add_early("r")
    assert not reads.needs_round
    reads.term_is_confirmed(LogIndex(4))
    assert reads.needs_round
    reads.begin_round(tick=1)
    assert reads.confirm(Round(1)) == [ReadReady("r", LogIndex(4))]


def test_lease_counts_from_the_sending_of_the_newest_confirmed_round() -> None:
    reads = Reads()
    assert reads.lease_age_ticks(0) is None
    for tick in (1, 3, 5):
        reads.begin_round(tick)
    reads.confirm(Round(2))
    assert reads.lease_age_ticks(7) == 4
    reads.confirm(Round(1))
    assert reads.lease_age_ticks(7) == 4


def test_round_sent_before_quiescence_gives_no_lease_after_it() -> None:
    reads = Reads()
    reads.begin_round(tick=1)
    reads.drop_lease()
    reads.confirm(Round(1))
    assert reads.lease_age_ticks(1) is None


def test_answer_to_a_round_that_was_never_sent_stops_the_node() -> None:
    with pytest.raises(InvariantBroken, match="never sent"):
        Reads().confirm(Round(1))
