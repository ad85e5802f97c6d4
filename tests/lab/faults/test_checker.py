"""Each anomaly: a small history that contains it, the reported example, and a similar clean history."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest
from tests.lab.faults.histories import Story, dense, polled

from kafkaesque.lab.faults.checks.anomalies import MEANINGS, Name
from kafkaesque.lab.faults.checks.checker import EXAMPLES_MAX, check_history
from kafkaesque.lab.faults.checks.history import (
    DestroyedRange,
    HistoryUnusable,
    OperationOutcome,
    SentRecord,
)
from kafkaesque.lab.faults.checks.observations import Observations

INFO, FAIL = OperationOutcome.INFO, OperationOutcome.FAIL


class Case(NamedTuple):
    """One anomaly planted by hand; `values` and `offsets` are those of the example expected."""

    name: Name
    bad: Story
    clean: Story
    values: tuple[object, ...]
    offsets: tuple[int, ...] = ()


def two(a: int | None = 0, b: int | None = 1) -> Story:
    """Values 1 and 2 acknowledged at these offsets."""
    return Story().send(1, a).send(2, b)


CASES = [
    Case(
        Name.INCONSISTENT_OFFSETS,
        two(0, 0).poll({0: [(0, 2)]}),
        two().poll({0: dense(1, 2)}),
        (1, 2),
        (0,),
    ),
    Case(
        Name.INCONSISTENT_OFFSETS,
        Story().send(1, None, outcome=INFO).send(2, 0).poll({0: [(0, 1)]}, outcome=FAIL),
        Story().send(1, None, outcome=INFO).send(2, 0).poll({0: [(0, 2)]}, outcome=FAIL),
        (1, 2),
        (0,),
    ),
    Case(
        Name.DUPLICATE,
        two().poll({0: dense(1, 2, 1)}),
        two().poll({0: dense(1, 2)}).poll({0: dense(1, 2)}, process=8),
        (1,),
        (0, 2),
    ),
    Case(
        Name.LOST_WRITE,
        two().send(3, 2).poll({0: [(0, 1), (2, 3)]}),
        two().send(3, 2).poll({0: [(0, 1)]}),
        (2,),
        (1,),
    ),
    # If one record of a transaction with unknown outcome was read, all of them must be in the log.
    Case(
        Name.LOST_WRITE,
        Story().txn(SentRecord(0, 0, 1), SentRecord(1, 0, 2), outcome=INFO).send(3, 1, key=1)
        .poll({0: [(0, 1)], 1: [(1, 3)]}),
        Story().txn(SentRecord(0, 0, 1), SentRecord(1, 0, 2), outcome=INFO).send(3, 1, key=1)
        .poll({1: [(1, 3)]}),
        (2,),
        (0,),
    ),
    Case(Name.UNSEEN, two().poll({0: [(0, 1)]}), two().poll({0: dense(1, 2)}), (2,), (1,)),
    Case(
        Name.UNSEEN,
        two().poll({0: dense(1, 2)}).final({0: [(0, 1)]}),
        two().poll({0: [(0, 1)]}).final({0: dense(1, 2)}),
        (2,),
        (1,),
    ),
    Case(
        Name.VANISHED,
        Story().send(1, None, outcome=INFO).poll({0: [(0, 1)]}).final({}),
        Story().send(1, None, outcome=INFO).poll({0: [(0, 1)]}).final({0: [(0, 1)]}),
        (1,),
        (0,),
    ),
    Case(
        Name.OFFSET_HOLE,
        two(0, 2).final({0: [(0, 1), (2, 2)]}),
        two(3, 4).final({0: dense(1, 2, start=3)}),
        (1, 2),
        (0, 2),
    ),
    Case(
        Name.DAMAGE_SERVED,
        Story(damaged=(DestroyedRange(0, 1, 1),)).send(1, 0).send(2, 1).final({0: dense(1, 2)}),
        Story(damaged=(DestroyedRange(0, 1, 1),)).send(1, 0).send(2, 1).send(3, 2)
        .final({0: [(0, 1), (2, 3)]}),
        (2,),
        (1,),
    ),
    Case(
        Name.PHANTOM,
        Story().send(1, 0).send(2, 0, key=1).poll({0: dense(1, 2)}),
        Story().send(1, 0).send(2, 0, key=1).poll({0: [(0, 1)], 1: [(0, 2)]}),
        (2,),
        (1,),
    ),
    Case(
        Name.PHANTOM,
        Story().poll({0: [(0, "b'torn'")]}, outcome=INFO),
        Story().send("b'torn'", 0).poll({0: [(0, "b'torn'")]}, outcome=INFO),
        ("b'torn'",),
        (0,),
    ),
    Case(
        Name.G1A,
        Story().send(1, None, outcome=FAIL).poll({0: [(0, 1)]}),
        Story().send(1, None, outcome=INFO).poll({0: [(0, 1)]}),
        (1,),
        (0,),
    ),
    Case(
        Name.PRECOMMITTED_READ,
        Story().txn(SentRecord(0, 0, 1), polled({0: [(0, 1)]})),
        Story().txn(SentRecord(0, 0, 1), polled({1: [(0, 1)]})),
        (1,),
        (0,),
    ),
    Case(
        Name.POLL_SKIP,
        two().send(3, 2).poll({0: [(0, 1)]}).poll({0: [(2, 3)]}),
        two().send(3, 2).poll({0: [(0, 1)]}).poll({0: [(1, 2)]}),
        (1, 3),
        (0, 2),
    ),
    # An assignment without the key resets the position in it; an assignment with it does not.
    Case(
        Name.POLL_SKIP,
        two().send(3, 2).poll({0: [(0, 1)]}).assign(0, 1).poll({0: [(2, 3)]}),
        two().send(3, 2).poll({0: [(0, 1)]}).assign(1).assign(0).poll({0: [(2, 3)]}),
        (1, 3),
        (0, 2),
    ),
    Case(
        Name.POLL_SKIP,
        two().send(3, 2).poll({0: [(0, 1)]}).poll({0: [(1, 2)]}, outcome=INFO)
        .poll({0: [(2, 3)]}),
        two().send(3, 2).poll({0: [(0, 1)]}).poll({0: [(1, 2)]}, outcome=INFO)
        .poll({0: [(1, 2)]}),
        (1, 3),
        (0, 2),
    ),
    Case(
        Name.NONMONOTONIC_POLL,
        two().poll({0: dense(1, 2)}).poll({0: [(1, 2)]}),
        two().poll({0: dense(1, 2)}).poll({0: [(0, 1)]}, rebalanced=[0]),
        (2, 2),
        (1, 1),
    ),
    Case(
        Name.SUBSCRIBED_POLL_SKIP,
        two().send(3, 2).subscribe(0).poll({0: [(0, 1)]}).poll({0: [(2, 3)]}),
        two().send(3, 2).subscribe(0).poll({0: [(0, 1)]}).poll({0: [(2, 3)]}, rebalanced=[0]),
        (1, 3),
        (0, 2),
    ),
    Case(
        Name.SUBSCRIBED_NONMONOTONIC_POLL,
        two().subscribe(0).poll({0: dense(1, 2)}).poll({0: [(0, 1)]}),
        two().subscribe(0).poll({0: [(0, 1)]}).poll({0: [(1, 2)]}),
        (2, 1),
        (1, 0),
    ),
    Case(
        Name.INT_POLL_SKIP,
        two().send(3, 2).poll({0: [(0, 1), (2, 3)]}),
        two().send(3, 2).poll({0: [(0, 1), (2, 3)]}, rebalanced=[0]),
        (1, 3),
        (0, 2),
    ),
    Case(
        Name.INT_NONMONOTONIC_POLL,
        two().poll({0: [(1, 2), (0, 1)]}),
        two().poll({0: [(0, 1), (1, 2)]}),
        (2, 1),
        (1, 0),
    ),
    Case(Name.NONMONOTONIC_SEND, two(1, 0), two(0, 1), (1, 2), (1, 0)),
    # The offset of an unacknowledged send is known from a reader.
    Case(
        Name.NONMONOTONIC_SEND,
        Story().send(1, None, outcome=INFO).send(2, 0).poll({0: dense(2, 1)}),
        Story().send(1, None, outcome=INFO).send(2, 0, process=1).poll({0: dense(2, 1)}),
        (1, 2),
        (1, 0),
    ),
    Case(
        Name.INT_NONMONOTONIC_SEND,
        Story().txn(SentRecord(0, 1, 1), SentRecord(0, 0, 2)),
        Story().txn(SentRecord(0, 0, 1), SentRecord(0, 1, 2)),
        (1, 2),
        (1, 0),
    ),
    Case(
        Name.INT_SEND_SKIP,
        Story().txn(SentRecord(0, 0, 1), SentRecord(0, 2, 2)).send(3, 1, process=1),
        Story().txn(SentRecord(0, 0, 1), SentRecord(0, 1, 2)).send(3, 2, process=1),
        (1, 2),
        (0, 2),
    ),
    Case(
        Name.G0,
        Story().txn(SentRecord(0, 0, 1), SentRecord(1, 1, 1)).txn(SentRecord(0, 1, 2), SentRecord(1, 0, 2), process=1),
        Story().txn(SentRecord(0, 0, 1), SentRecord(1, 0, 1)).txn(SentRecord(0, 1, 2), SentRecord(1, 1, 2), process=1),
        (),
    ),
    Case(
        Name.G1C,
        Story().txn(SentRecord(0, 0, 1), polled({1: [(0, 2)]}))
        .txn(SentRecord(1, 0, 2), polled({0: [(0, 1)]}), process=1),
        Story().txn(SentRecord(0, 0, 1))
        .txn(SentRecord(1, 0, 2), polled({0: [(0, 1)]}), process=1),
        (),
    ),
    Case(
        Name.TORN_TRANSACTION,
        Story().txn(SentRecord(0, 0, 1), SentRecord(1, 0, 2)).send(3, 1, key=1)
        .final({0: [(0, 1)], 1: [(1, 3)]}),
        Story().txn(SentRecord(0, 0, 1), SentRecord(1, 0, 2)).send(3, 1, key=1)
        .poll({0: [(0, 1)], 1: [(1, 3)]}),
        (2,),
        (0,),
    ),
    # Its offset is unknown: only the complete final read shows that it is missing.
    Case(
        Name.TORN_TRANSACTION,
        Story().txn(SentRecord(0, None, 1), SentRecord(1, None, 2), outcome=INFO).final({0: [(0, 1)]}),
        Story().txn(SentRecord(0, None, 1), SentRecord(1, None, 2), outcome=INFO).final({}),
        (2,),
    ),
    Case(
        Name.TORN_TRANSACTION,
        Story().txn(SentRecord(0, 0, 1), SentRecord(1, 0, 2), outcome=FAIL).poll({0: [(0, 1)]}),
        Story().txn(SentRecord(0, 0, 1), SentRecord(1, 0, 2), outcome=FAIL).poll({1: []}),
        (1,),
        (0,),
    ),
    # It is missing, and another record is at its offset, the last one that was read.
    Case(
        Name.LOST_WRITE,
        two().send(3, 1, process=1).poll({0: dense(1, 3)}),
        two().send(3, 2, process=1).poll({0: dense(1, 2, 3)}),
        (2,),
        (1,),
    ),
    # A second copy after everything that was read: no reader has reached it yet.
    Case(
        Name.LOST_WRITE,
        two().send(3, 2).poll({0: [(0, 1), (2, 3)]}),
        two().send(3, 2).poll({0: [(0, 1), (2, 3)]}).poll({0: [(5, 2)]}, outcome=INFO),
        (2,),
        (1,),
    ),
    # The second copy of a value does not count: the reader need not have reached it in order.
    Case(
        Name.LOST_WRITE,
        two().send(3, 2).poll({0: [(0, 1), (2, 3)]}),
        two().poll({0: [(0, 1), (2, 1)]}),
        (2,),
        (1,),
    ),
    # A value with unknown or failed outcome that no successful poll returned need not be there.
    Case(
        Name.LOST_WRITE,
        Story().send(1, 0).send(2, 1).poll({0: [(1, 2)]}),
        Story().send(1, None, outcome=INFO).send(2, 1).poll({0: [(0, 1)]}, outcome=INFO)
        .poll({0: [(1, 2)]}),
        (1,),
        (0,),
    ),
    Case(
        Name.LOST_WRITE,
        Story().send(1, 0).send(2, 1).poll({0: [(1, 2)]}),
        Story().send(1, None, outcome=FAIL).send(2, 1).poll({0: [(0, 1)]}, outcome=INFO)
        .poll({0: [(1, 2)]}),
        (1,),
        (0,),
    ),
    Case(
        Name.INCONSISTENT_OFFSETS,
        Story().send(1, 0).send(2, 0).poll({0: [(0, 2)]}),
        Story().txn(SentRecord(0, 0, 1), outcome=INFO).send(2, 0).poll({0: [(0, 2)]}),
        (1, 2),
        (0,),
    ),
    Case(
        Name.G1A,
        Story().send(1, None, outcome=FAIL).poll({0: [(0, 1)]}),
        Story().send(1, None, outcome=FAIL).poll({0: [(0, 1)]}, outcome=INFO),
        (1,),
        (0,),
    ),
    # Over the polls of one operation.
    Case(
        Name.INT_NONMONOTONIC_POLL,
        two().txn(polled({0: [(1, 2)]}), polled({0: [(0, 1)]}), process=9),
        two().txn(polled({0: [(0, 1)]}), polled({0: [(1, 2)]}), process=9),
        (2, 1),
        (1, 0),
    ),
    # Only a final reader that read everything can prove that a record is missing.
    Case(
        Name.TORN_TRANSACTION,
        Story().txn(SentRecord(0, None, 1), SentRecord(1, None, 2), outcome=INFO).final({0: [(0, 1)]}),
        Story().txn(SentRecord(0, None, 1), SentRecord(1, None, 2), outcome=INFO).poll({0: [(0, 1)]})
        .final({}, process=98),
        (2,),
    ),
    Case(
        Name.TORN_TRANSACTION,
        Story().txn(SentRecord(0, None, 1), SentRecord(1, None, 2), outcome=INFO).final({0: [(0, 1)]}),
        Story(final_reads_complete=False).txn(SentRecord(0, None, 1), SentRecord(1, None, 2), outcome=INFO)
        .final({0: [(0, 1)]}),
        (2,),
    ),
    # A transaction that is missing as a whole is lost, not torn.
    Case(
        Name.TORN_TRANSACTION,
        Story().txn(SentRecord(0, 0, 1), SentRecord(1, 0, 2)).send(3, 1).send(4, 1, key=1)
        .final({0: dense(1, 3), 1: [(1, 4)]}),
        Story().txn(SentRecord(0, 0, 1), SentRecord(1, 0, 2)).send(3, 1).send(4, 1, key=1)
        .final({0: [(1, 3)], 1: [(1, 4)]}),
        (2,),
        (0,),
    ),
    # A reader whose position was moved past the offset did not pass it by reading.
    Case(
        Name.TORN_TRANSACTION,
        two().txn(SentRecord(0, 2, 3), SentRecord(1, 0, 4)).send(5, 3)
        .poll({0: dense(1, 2), 1: [(0, 4)]}).poll({0: [(3, 5)]}),
        two().txn(SentRecord(0, 2, 3), SentRecord(1, 0, 4)).send(5, 3)
        .poll({0: dense(1, 2), 1: [(0, 4)]}).poll({0: [(3, 5)]}, rebalanced=[0]),
        (3,),
        (2,),
    ),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.value)
def test_planted_anomaly_is_found_with_its_example(case: Case) -> None:
    finding = check_history(case.bad.history).findings[case.name]
    assert finding.count == 1
    example = finding.examples[0]
    assert (example.values, example.offsets) == (case.values, case.offsets)
    assert all(0 <= index < len(case.bad.operations) for index in example.operations)
    assert example.text


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.value)
def test_similar_clean_history_has_no_anomaly(case: Case) -> None:
    assert case.name not in check_history(case.clean.history).findings


def test_every_anomaly_has_a_case_and_a_meaning() -> None:
    assert {case.name for case in CASES} == set(Name) == set(MEANINGS)


TERMS: list[tuple[Callable[..., Story], dict[str, bool], Name]] = [
    (lambda **t: Story(**t).send(1, 0).poll({0: dense(1, 1)}), {"idempotent": False},
     Name.DUPLICATE),
    (lambda **t: Story(**t).send(1, 1).send(2, 0).poll({0: dense(2, 1)}), {"idempotent": False},
     Name.NONMONOTONIC_SEND),
    (lambda **t: Story(**t).send(1, 0).send(2, 1).final({0: [(0, 1)]}),
     {"final_reads_complete": False}, Name.UNSEEN),
    (lambda **t: Story(**t).send(1, 0).send(2, 2).final({0: [(0, 1), (2, 2)]}),
     {"dense_offsets": False}, Name.OFFSET_HOLE),
]  # fmt: skip


@pytest.mark.parametrize(("make", "terms", "name"), TERMS, ids=[row[2] for row in TERMS])
def test_terms_make_an_anomaly_legal(
    make: Callable[..., Story], terms: dict[str, bool], name: Name
) -> None:
    strict, lenient = check_history(make().history), check_history(make(**terms).history)
    assert list(strict.bad) == [name]
    assert not strict.is_valid
    assert list(lenient.findings) == [name]
    assert lenient.is_valid


@pytest.mark.parametrize(
    "story",
    [
        next(case.bad for case in CASES if case.name is Name.G0),
        next(case.bad for case in CASES if case.name is Name.INT_SEND_SKIP),
    ],
)
def test_anomalies_that_kafka_permits_are_always_legal(story: Story) -> None:
    assert check_history(story.history).legal >= {Name.G0, Name.INT_SEND_SKIP}


def test_damaged_records_are_counted_apart_and_are_not_lost() -> None:
    story = Story(damaged=(DestroyedRange(0, 1, 2),))
    for value in range(4):
        story.send(value, value)
    verdict = check_history(story.final({0: [(0, 0), (3, 3)]}, process=9).history)
    assert (verdict.lost, verdict.damaged_records) == (0, 2)
    assert Name.OFFSET_HOLE not in verdict.findings


def test_record_that_is_lost_and_unseen_counts_once() -> None:
    story = two().send(3, 2).final({0: [(0, 1), (2, 3)]})
    verdict = check_history(story.history)
    assert {Name.LOST_WRITE, Name.UNSEEN} <= set(verdict.findings)
    assert verdict.lost == 1


def test_all_are_counted_and_few_are_shown() -> None:
    story = Story()
    for value in range(20):
        story.send(value, value)
    finding = check_history(story.history).findings[Name.UNSEEN]
    assert (finding.count, len(finding.examples)) == (20, EXAMPLES_MAX)


def test_value_sent_twice_makes_the_history_unusable() -> None:
    with pytest.raises(HistoryUnusable, match="operations 0 and 1"):
        Observations(Story().send(1, 0).send(1, 1).history)
