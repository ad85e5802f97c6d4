"""Counts, gaps and lag of histories whose figures are known."""

from __future__ import annotations

import msgspec
import pytest
from tests.lab.faults.histories import Story, dense

from kafkaesque.lab.faults.checks.figures import (
    Fault,
    acknowledgement_gaps,
    consumed_times,
    count_figures,
    gaps_of_faults,
    percentile,
    realtime_lag,
)
from kafkaesque.lab.faults.checks.history import (
    ClientOperation,
    Function,
    OperationOutcome,
    Polled,
    SentRecord,
)
from kafkaesque.lab.faults.checks.observations import Observations

MS = 1000


def sent_at(*times_ms: tuple[int, int | None]) -> list[ClientOperation]:
    """Sends as (invoked, acknowledged) in ms; without an acknowledgement unknown after 50 ms."""
    return [
        ClientOperation(
            index=index,
            process=0,
            outcome=OperationOutcome.INFO if acknowledged is None else OperationOutcome.OK,
            f=Function.SEND,
            micro=(SentRecord(0, index, index),),
            invoked_us=invoked * MS,
            completed_us=(invoked + 50 if acknowledged is None else acknowledged) * MS,
        )
        for index, (invoked, acknowledged) in enumerate(times_ms)
    ]


def test_counts_are_of_records_by_outcome() -> None:
    story = Story().send(1, 0).send(2, 1).send(3, None, outcome=OperationOutcome.INFO)
    story.send(4, None, outcome=OperationOutcome.FAIL).txn(SentRecord(0, 2, 5), SentRecord(0, 3, 6))
    story.poll({0: dense(1, 2)}).final({0: dense(1, 2, 5, 6)})
    figures = count_figures(Observations(story.history))
    assert (figures.acknowledged, figures.unknown, figures.failed) == (4, 1, 1)
    assert figures.polled == 6


@pytest.mark.parametrize(
    ("times_ms", "longest_ms"),
    [
        ([(0, 1), (10, 11), (500, 501)], 490),
        # Measured from the first send: no client was waiting before it.
        ([(1000, 1300), (1001, 1301)], 300),
        # At the end a client still sends and gets no answer.
        ([(0, 1), (5, 6), (400, None)], 444),
        # Completions come in any order.
        ([(0, 20), (1, 10)], 10),
    ],
)
def test_longest_gap_is_the_longest_wait_for_an_acknowledgement(
    times_ms: list[tuple[int, int | None]], longest_ms: int
) -> None:
    gaps = acknowledgement_gaps(sent_at(*times_ms))
    assert max(end - start for start, end in gaps) == longest_ms * MS


def test_nothing_sent_has_no_gap() -> None:
    assert acknowledgement_gaps([]) == []


def test_each_fault_has_the_gap_that_follows_it() -> None:
    sending = sent_at((0, 1), (100, 101), (110, 400), (410, 411), (500, 501), (600, 650))
    faults = [Fault(105 * MS, frozenset({0})), Fault(502 * MS, frozenset({0}))]
    assert gaps_of_faults(sending, faults) == [299, 149]


def test_gap_of_a_fault_is_that_of_the_keys_it_hit() -> None:
    hit = sent_at((0, 1), (100, 400), (500, 501))
    spared = [
        msgspec.structs.replace(one, micro=(SentRecord(1, one.index, one.index),))
        for one in sent_at((0, 1), (100, 102), (200, 205), (300, 301), (490, 500))
    ]
    sending = [*hit, *spared]
    assert gaps_of_faults(sending, [Fault(90 * MS, frozenset({0}))]) == [399]
    assert gaps_of_faults(sending, [Fault(90 * MS, frozenset({1}))]) == [199]
    assert gaps_of_faults(sending, [Fault(90 * MS, frozenset({0, 1}))]) == [399]


def test_percentile_of_none_is_zero_and_of_some_is_one_of_them() -> None:
    assert percentile([], 0.5) == 0
    assert percentile([3, 1, 2], 0.5) == 2
    assert percentile([3, 1, 2], 0.99) == 3


def test_lag_is_the_age_of_the_next_record_when_a_poll_began() -> None:
    story = Story().assign(0).send(1, 0).poll({0: dense(1)}).send(2, 1)
    # Operation 3 made offset 1 known at 3.5 ms. The poll that begins at 4 ms does not return it.
    story.poll({}).poll({0: [(1, 2)]})
    assert realtime_lag(Observations(story.history)).worst_ms == 0.5


def test_reader_that_has_everything_does_not_lag() -> None:
    story = Story().assign(0).send(1, 0).poll({0: dense(1)}).poll({}).poll({})
    assert realtime_lag(Observations(story.history)).worst_ms == 0


def test_reader_whose_position_is_unknown_has_no_lag() -> None:
    story = Story().assign(0).send(1, 0).poll({0: dense(1)}).send(2, 1)
    story.poll({}, rebalanced=[0])
    assert realtime_lag(Observations(story.history)).worst_ms == 0


def test_known_record_implies_that_earlier_ones_exist() -> None:
    story = Story().assign(0).send(1, 0).poll({0: dense(1)})
    # Another reader shows offset 2 at 3.5 ms; offset 1 is acknowledged at 4.5 ms only.
    story.poll({0: [(2, 3)]}, process=8).send(2, 1).poll({})
    assert realtime_lag(Observations(story.history)).worst_ms == 1.5


def test_final_reads_are_not_late() -> None:
    story = Story().send(1, 0).send(2, 1).assign(0, process=99)
    story.final({0: [(0, 1)]}).final({0: [(1, 2)]})
    assert realtime_lag(Observations(story.history)).worst_ms == 0


def test_values_consumed_in_a_group_are_counted() -> None:
    story = Story().subscribe(0).poll({0: dense(1, 2, 3)}).poll({0: dense(2, start=1)})
    story.poll({0: dense(1, 2, 3)}, outcome=OperationOutcome.INFO)
    story.assign(0, process=8).poll({0: dense(1, 2, 3)}, process=8)
    assert consumed_times(story.operations) == {1: 2, 2: 1}


def test_empty_polls_are_allowed() -> None:
    operation = ClientOperation(0, 9, OperationOutcome.OK, Function.POLL, (Polled({0: []}),))
    story = Story()
    story.operations.append(operation)
    assert count_figures(Observations(story.history)).polled == 0
