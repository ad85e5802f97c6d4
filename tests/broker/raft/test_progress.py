from __future__ import annotations

import pytest

from kafkaesque.broker.raft.progress import Inflights, Progress, ProgressState
from kafkaesque.broker.raft.types import LogIndex, Round
from kafkaesque.model.errors import InvariantBroken


def index(number: int) -> LogIndex:
    return LogIndex(number)


def fresh(next_index: int = 11, messages: int = 2, size_bytes: int = 100) -> Progress:
    return Progress(index(next_index), Inflights(messages, size_bytes))


def replicating(match: int = 10) -> Progress:
    progress = fresh(match + 1)
    progress.sent(0, 0)
    progress.acknowledged(index(match))
    assert progress.state is ProgressState.REPLICATE
    return progress


def test_window_is_bounded_in_messages_and_in_bytes() -> None:
    inflights = Inflights(2, 100)
    inflights.add(index(1), 60)
    assert not inflights.is_full
    inflights.add(index(2), 1)
    assert inflights.is_full
    inflights.free_to(index(1))
    inflights.add(index(3), 100)
    assert inflights.is_full
    with pytest.raises(InvariantBroken, match="full window"):
        inflights.add(index(4), 1)
    inflights.free_to(index(3))
    assert (len(inflights), inflights.size_bytes) == (0, 0)


def test_probe_sends_one_append_and_waits() -> None:
    progress = fresh()
    assert progress.can_send
    progress.sent(3, 30)
    assert not progress.can_send
    assert progress.next_index == 11


def test_acknowledged_probe_opens_the_pipeline_after_what_it_carried() -> None:
    progress = fresh()
    progress.sent(3, 30)
    assert progress.acknowledged(index(13))
    assert (progress.state, progress.next_index) == (ProgressState.REPLICATE, 14)


def test_probe_that_is_accepted_and_not_yet_on_disk_is_not_sent_again() -> None:
    progress = fresh()
    progress.sent(3, 30)
    progress.acknowledged(index(10))
    assert (progress.state, progress.match_index, progress.next_index) == (
        ProgressState.REPLICATE,
        10,
        14,
    )
    assert progress.inflights.size_bytes == 30


def test_pipeline_stops_at_the_window_and_continues_with_acknowledgements() -> None:
    progress = replicating()
    progress.sent(1, 10)
    progress.sent(2, 10)
    assert (progress.next_index, progress.can_send) == (14, False)
    progress.acknowledged(index(11))
    assert progress.can_send


def test_outdated_acknowledgement_is_ignored() -> None:
    progress = replicating(10)
    assert not progress.acknowledged(index(7))
    assert (progress.match_index, progress.next_index) == (10, 11)


@pytest.mark.parametrize(
    ("prev", "hint", "expected"), [(14, 12, 12), (14, 3, 11), (14, 99, 14), (10, 5, None)]
)
def test_refusal_in_the_pipeline_goes_back_but_not_below_what_is_known(
    prev: int, hint: int, expected: int | None
) -> None:
    progress = replicating(10)
    for _ in range(2):
        progress.sent(2, 1)
    assert progress.rejected(index(prev), index(hint)) is (expected is not None)
    if expected is not None:
        assert (progress.state, progress.next_index) == (ProgressState.PROBE, expected)


def test_refusal_of_an_older_probe_is_ignored() -> None:
    progress = fresh(11)
    progress.sent(1, 1)
    assert progress.rejected(index(10), index(5))
    progress.sent(1, 1)
    assert not progress.rejected(index(10), index(5))
    assert progress.is_waiting


def test_answer_to_a_later_heartbeat_shows_a_lost_append_once() -> None:
    """Only new information causes a resend: duplicate answers do not multiply messages."""
    progress = replicating(10)
    progress.sent(2, 1)
    progress.mark(Round(5))
    progress.answered(Round(4), index(10), index(10))
    assert progress.state is ProgressState.REPLICATE
    progress.answered(Round(5), index(10), index(10))
    assert (progress.state, progress.next_index, progress.can_send) == (
        ProgressState.PROBE,
        11,
        True,
    )
    progress.sent(2, 1)
    progress.answered(Round(5), index(10), index(10))
    assert not progress.can_send


def test_follower_that_lost_its_matched_index_is_probed() -> None:
    """Otherwise it learns of no commit before the next entry (found by simulation, seed 91286)."""
    progress = replicating(10)
    progress.mark(Round(5))
    progress.answered(Round(5), index(3), index(3))
    assert (progress.state, progress.next_index, progress.can_send) == (
        ProgressState.PROBE,
        11,
        True,
    )


def test_append_that_waits_for_a_slow_disk_is_not_taken_for_lost() -> None:
    progress = replicating(10)
    progress.sent(2, 1)
    progress.mark(Round(5))
    progress.answered(Round(5), index(12), index(10))
    assert (progress.state, progress.next_index) == (ProgressState.REPLICATE, 13)


def test_answer_to_a_heartbeat_repeats_a_lost_acknowledgement() -> None:
    progress = replicating(10)
    progress.sent(2, 1)
    assert progress.answered(Round(1), index(12), index(12))
    assert (progress.match_index, len(progress.inflights)) == (12, 0)


def test_lost_acknowledgement_of_an_empty_probe_is_repeated_too() -> None:
    progress = replicating(10)
    progress.start_over()
    progress.sent(0, 0)
    assert not progress.answered(Round(3), index(10), index(10))
    assert progress.state is ProgressState.REPLICATE


def test_lost_probe_is_repeated_where_it_was() -> None:
    """A follower that lost its commit index reports 0: starting there would send the whole log."""
    progress = fresh(1001)
    progress.sent(1, 1)
    progress.mark(Round(1))
    progress.answered(Round(1), index(0), index(0))
    assert (progress.next_index, progress.can_send) == (1001, True)


def test_snapshot_ends_with_an_acknowledgement_at_least_as_far() -> None:
    progress = fresh(5)
    progress.sent_snapshot(index(20))
    assert not progress.can_send
    progress.acknowledged(index(7))
    assert progress.state is ProgressState.SNAPSHOT
    progress.acknowledged(index(20))
    assert (progress.state, progress.next_index) == (ProgressState.REPLICATE, 21)


def test_unreachable_peer_gets_nothing_until_it_answers() -> None:
    progress = replicating(10)
    progress.sent(2, 1)
    progress.lost_contact()
    assert (progress.can_send, progress.next_index) == (False, 11)
    progress.heard()
    assert progress.can_send
