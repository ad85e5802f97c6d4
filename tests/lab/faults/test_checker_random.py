"""Random clean histories have no anomaly; one planted defect in each is found."""

from __future__ import annotations

import random
from collections.abc import Callable

import msgspec
import pytest
from tests.lab.faults.histories import random_clean

from kafkaesque.lab.faults.checks.anomalies import Name
from kafkaesque.lab.faults.checks.checker import check_history
from kafkaesque.lab.faults.checks.history import (
    ClientOperation,
    Function,
    History,
    OperationOutcome,
    Polled,
    SentRecord,
)

SEEDS = range(12)
Plant = Callable[[random.Random, list[ClientOperation]], None]


@pytest.mark.parametrize("seed", range(40))
def test_clean_history_has_no_anomaly(seed: int) -> None:
    verdict = check_history(random_clean(seed))
    assert verdict.findings == {}
    assert verdict.lost == verdict.duplicated == verdict.reordered == 0


def acknowledged(operations: list[ClientOperation]) -> list[ClientOperation]:
    return [one for one in operations if one.sends and one.outcome is OperationOutcome.OK]


def without(operations: list[ClientOperation], key: int, value: object) -> None:
    """No reader ever sees the value."""
    for place, one in enumerate(operations):
        polls = [
            Polled(
                {
                    k: [row for row in rows if (k, row[1]) != (key, value)]
                    for k, rows in poll.records.items()
                }
            )
            for poll in one.polls
        ]
        if polls:
            operations[place] = msgspec.structs.replace(one, micro=tuple(polls))


def lose_one(rng: random.Random, operations: list[ClientOperation]) -> None:
    sent = rng.choice(acknowledged(operations)[:-30]).sends[0]
    without(operations, sent.key, sent.value)


def lose_tail(rng: random.Random, operations: list[ClientOperation]) -> None:
    last = {one.sends[0].key: one.sends[0] for one in acknowledged(operations)}
    sent = last[rng.choice(list(last))]
    without(operations, sent.key, sent.value)


def fail_one_that_is_there(rng: random.Random, operations: list[ClientOperation]) -> None:
    one = rng.choice(acknowledged(operations))
    changed = tuple(SentRecord(sent.key, None, sent.value) for sent in one.sends)
    operations[one.index] = msgspec.structs.replace(
        one, outcome=OperationOutcome.FAIL, micro=changed
    )


def some_poll(
    rng: random.Random, operations: list[ClientOperation], rows_min: int, f: Function
) -> tuple[ClientOperation, int, list[tuple[int, object]]]:
    choices = [
        (one, key, rows)
        for one in operations
        if one.f is f and one.outcome is OperationOutcome.OK
        for poll in one.polls
        for key, rows in poll.records.items()
        if len(rows) >= rows_min
    ]
    one, key, rows = rng.choice(choices)
    return one, key, list(rows)


def put_rows(
    operations: list[ClientOperation],
    one: ClientOperation,
    key: int,
    rows: list[tuple[int, object]],
) -> None:
    records = {**one.polls[0].records, key: rows}
    operations[one.index] = msgspec.structs.replace(one, micro=(Polled(records),))  # type: ignore[arg-type]


def swap_in_a_poll(rng: random.Random, operations: list[ClientOperation]) -> None:
    one, key, rows = some_poll(rng, operations, 2, Function.POLL)
    place = rng.randrange(len(rows) - 1)
    rows[place], rows[place + 1] = rows[place + 1], rows[place]
    put_rows(operations, one, key, rows)


def leave_out_in_a_poll(rng: random.Random, operations: list[ClientOperation]) -> None:
    one, key, rows = some_poll(rng, operations, 3, Function.POLL)
    del rows[rng.randrange(1, len(rows) - 1)]
    put_rows(operations, one, key, rows)


def repeat_a_poll(rng: random.Random, operations: list[ClientOperation]) -> None:
    one, _, _ = some_poll(rng, operations, 1, Function.POLL)
    following = next(
        other
        for other in operations[one.index + 1 :]
        if other.process == one.process or other.f is Function.FINAL
    )
    operations[following.index] = msgspec.structs.replace(
        following,
        process=one.process,
        micro=one.micro,
        outcome=OperationOutcome.OK,
        f=Function.POLL,
    )


def duplicate_one(rng: random.Random, operations: list[ClientOperation]) -> None:
    one, key, rows = some_poll(rng, operations, 2, Function.FINAL)
    rows[-1] = (rows[-1][0] + 1000, rows[0][1])
    put_rows(operations, one, key, rows)


def change_one(rng: random.Random, operations: list[ClientOperation]) -> None:
    one, key, rows = some_poll(rng, operations, 1, Function.FINAL)
    rows[0] = (rows[0][0], "damaged")
    put_rows(operations, one, key, rows)


def swap_two_sends(rng: random.Random, operations: list[ClientOperation]) -> None:
    """Swaps the values of two adjacent sends of one producer: only the order is wrong."""
    by_producer: dict[tuple[int, int], list[ClientOperation]] = {}
    for one in acknowledged(operations):
        by_producer.setdefault((one.process, one.sends[0].key), []).append(one)
    ordered = rng.choice([rows for rows in by_producer.values() if len(rows) > 1])
    place = rng.randrange(len(ordered) - 1)
    first, second = ordered[place], ordered[place + 1]
    operations[first.index] = msgspec.structs.replace(first, micro=second.micro)
    operations[second.index] = msgspec.structs.replace(second, micro=first.micro)


DEFECTS: list[tuple[Plant, Name]] = [
    (lose_one, Name.LOST_WRITE),
    (lose_one, Name.UNSEEN),
    (lose_tail, Name.UNSEEN),
    (fail_one_that_is_there, Name.G1A),
    (swap_in_a_poll, Name.INT_NONMONOTONIC_POLL),
    (leave_out_in_a_poll, Name.INT_POLL_SKIP),
    (repeat_a_poll, Name.NONMONOTONIC_POLL),
    (duplicate_one, Name.DUPLICATE),
    (change_one, Name.INCONSISTENT_OFFSETS),
    (change_one, Name.PHANTOM),
    (swap_two_sends, Name.NONMONOTONIC_SEND),
]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("plant", "name"), DEFECTS, ids=lambda part: getattr(part, "__name__", part)
)
def test_planted_defect_is_found(plant: Plant, name: Name, seed: int) -> None:
    history = random_clean(seed)
    operations = list(history.operations)
    plant(random.Random(seed), operations)
    verdict = check_history(History(history.terms, operations))
    assert name in verdict.bad
