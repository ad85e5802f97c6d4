"""Random clean histories of transactions have no anomaly; one planted defect in each is found."""

from __future__ import annotations

import random
from collections.abc import Callable

import msgspec
import pytest

from kafkaesque.lab.faults.checks.anomalies import Name
from kafkaesque.lab.faults.checks.checker import check_history
from kafkaesque.lab.faults.checks.history import (
    ClientOperation,
    Function,
    History,
    OperationOutcome,
    Polled,
    SentRecord,
    Terms,
)

KEYS = range(4)
TRANSACTIONS = 60
TERMS = Terms(dense_offsets=False)
SEEDS = range(12)
Rows = list[tuple[int, int | str]]


class Log:
    """The records that a correct broker would serve."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.ends = dict.fromkeys(KEYS, 0)
        self.visible: dict[int, Rows] = {key: [] for key in KEYS}
        self.operations: list[ClientOperation] = []
        self.next_value = 0

    def add(
        self,
        process: int,
        f: Function,
        outcome: OperationOutcome,
        micro: list[SentRecord | Polled],
        **more: object,
    ) -> None:
        index = len(self.operations)
        self.operations.append(
            ClientOperation(index, process, outcome, f, tuple(micro), **more)  # type: ignore[arg-type]
        )

    def transact(self) -> None:
        """One transaction, which may also have read what others committed before it."""
        rng = self.rng
        outcome = rng.choices(
            (OperationOutcome.OK, OperationOutcome.FAIL, OperationOutcome.INFO), (7, 2, 2)
        )[0]
        is_visible = outcome is OperationOutcome.OK or (
            outcome is OperationOutcome.INFO and rng.random() < 0.5
        )
        micro: list[SentRecord | Polled] = []
        if rng.random() < 0.4:
            key = rng.choice(KEYS)
            if self.visible[key]:
                micro.append(Polled({key: self.visible[key][-1:]}))
        appeared: list[tuple[int, tuple[int, int]]] = []
        for _ in range(rng.randint(1, 4)):
            key, value = rng.choice(KEYS), self.next_value
            self.next_value += 1
            offset = self.ends[key]
            self.ends[key] += rng.randint(1, 3)  # markers of other transactions are in between
            micro.append(SentRecord(key, offset, value))
            appeared.append((key, (offset, value)))
        if is_visible:
            for key, row in appeared:
                self.visible[key].append(row)
        self.add(self.rng.randrange(1000, 10**6), Function.TXN, outcome, micro)

    def read_all(self, process: int) -> None:
        self.add(process, Function.ASSIGN, OperationOutcome.OK, [], keys=tuple(KEYS))
        for key in KEYS:
            rows = self.visible[key]
            for start in range(0, len(rows), 7):
                polled = Polled({key: rows[start : start + 7]})
                self.add(process, Function.FINAL, OperationOutcome.OK, [polled])


def random_clean(seed: int) -> Log:
    log = Log(random.Random(seed))
    for _ in range(TRANSACTIONS):
        log.transact()
    for process in (1, 2):
        log.read_all(process)
    return log


def bad_names(operations: list[ClientOperation]) -> set[Name]:
    return set(check_history(History(TERMS, operations)).bad)


@pytest.mark.parametrize("seed", range(30))
def test_clean_history_has_no_anomaly(seed: int) -> None:
    assert bad_names(random_clean(seed).operations) == set()


# -- defects --------------------------------------------------------------------------------------


def with_rows(operations: list[ClientOperation], change: Callable[[int, Rows], Rows]) -> None:
    """The history with every final read changed by `change`."""
    for place, one in enumerate(operations):
        if one.f is Function.FINAL:
            polls = [
                Polled({key: change(key, list(rows)) for key, rows in poll.records.items()})
                for poll in one.polls
            ]
            operations[place] = msgspec.structs.replace(one, micro=tuple(polls))


def transactions(log: Log, outcome: OperationOutcome, sends_min: int = 1) -> list[ClientOperation]:
    return [
        one
        for one in log.operations
        if one.f is Function.TXN and one.outcome is outcome and len(one.sends) >= sends_min
    ]


def some_inner_send(log: Log) -> tuple[ClientOperation, SentRecord]:
    """A record of a committed transaction with several records, followed by a later record of its key."""
    last = {key: rows[-1][1] for key, rows in log.visible.items()}
    return log.rng.choice(
        [
            (one, sent)
            for one in transactions(log, OperationOutcome.OK, 2)
            for sent in one.sends
            if sent.value != last[sent.key]
        ]
    )


def hide(log: Log, hidden: SentRecord) -> None:
    with_rows(log.operations, lambda _, rows: [row for row in rows if row[1] != hidden.value])


def hide_one_record(log: Log) -> None:
    _, sent = some_inner_send(log)
    hide(log, sent)


def show_an_aborted_one(log: Log) -> None:
    sent = log.rng.choice(transactions(log, OperationOutcome.FAIL)).sends[0]
    row = (sent.offset or 0, sent.value)
    with_rows(
        log.operations,
        lambda key, rows: sorted([*rows, row]) if key == sent.key else rows,  # type: ignore[list-item, type-var]
    )


def show_a_part_of_an_unknown_one(log: Log) -> None:
    """The outcome is unknown, but one of its records is in the log: then all must be."""
    one, sent = some_inner_send(log)
    log.operations[one.index] = msgspec.structs.replace(one, outcome=OperationOutcome.INFO)
    hide(log, sent)


def read_itself(log: Log) -> None:
    one = log.rng.choice(transactions(log, OperationOutcome.OK))
    sent = one.sends[0]
    polled = Polled({sent.key: [(sent.offset or 0, sent.value)]})
    log.operations[one.index] = msgspec.structs.replace(one, micro=(*one.micro, polled))


def read_in_a_circle(log: Log) -> None:
    first, second = log.rng.sample(transactions(log, OperationOutcome.OK), 2)
    for reader, writer in ((first, second), (second, first)):
        sent = writer.sends[0]
        polled = Polled({sent.key: [(sent.offset or 0, sent.value)]})
        log.operations[reader.index] = msgspec.structs.replace(
            reader, micro=(*reader.micro, polled)
        )


DEFECTS: list[tuple[Callable[[Log], None], Name]] = [
    (hide_one_record, Name.TORN_TRANSACTION),
    (hide_one_record, Name.UNSEEN),
    (show_an_aborted_one, Name.G1A),
    (show_an_aborted_one, Name.TORN_TRANSACTION),
    (show_a_part_of_an_unknown_one, Name.TORN_TRANSACTION),
    (read_itself, Name.PRECOMMITTED_READ),
    (read_in_a_circle, Name.G1C),
]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("plant", "name"), DEFECTS, ids=lambda part: getattr(part, "__name__", part)
)
def test_planted_defect_is_found(plant: Callable[[Log], None], name: Name, seed: int) -> None:
    log = random_clean(seed)
    plant(log)
    assert name in bad_names(log.operations)
