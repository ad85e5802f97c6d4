"""Histories for tests: short ones built by hand, and random clean ones in which tests plant a defect."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from kafkaesque.lab.faults.checks.history import (
    ClientOperation,
    Function,
    History,
    Key,
    OperationOutcome,
    Polled,
    SentRecord,
    Terms,
    Value,
)

Rows = Mapping[Key, Sequence[tuple[int, Value]]]


class Story:
    """Builds a history; each operation gets the next index and takes one millisecond."""

    def __init__(self, **terms: object) -> None:
        self.terms = Terms(**terms)  # type: ignore[arg-type]
        self.operations: list[ClientOperation] = []

    def add(
        self,
        process: int,
        f: Function,
        micro: Sequence[SentRecord | Polled] = (),
        outcome: OperationOutcome = OperationOutcome.OK,
        keys: Sequence[Key] = (),
        rebalanced: Sequence[Key] = (),
    ) -> Story:
        index = len(self.operations)
        self.operations.append(
            ClientOperation(
                index=index,
                process=process,
                outcome=outcome,
                f=f,
                micro=tuple(micro),
                keys=tuple(keys),
                rebalanced=tuple(rebalanced),
                invoked_us=index * 1000,
                completed_us=index * 1000 + 500,
            )
        )
        return self

    def send(
        self, value: Value, offset: int | None, *, process: int = 0, key: Key = 0,
        outcome: OperationOutcome = OperationOutcome.OK,
    ) -> Story:  # fmt: skip
        return self.add(process, Function.SEND, [SentRecord(key, offset, value)], outcome)

    def poll(
        self, rows: Rows, *, process: int = 9, outcome: OperationOutcome = OperationOutcome.OK,
        rebalanced: Sequence[Key] = (),
    ) -> Story:  # fmt: skip
        return self.add(process, Function.POLL, [polled(rows)], outcome, rebalanced=rebalanced)

    def final(self, rows: Rows, *, process: int = 99) -> Story:
        return self.add(process, Function.FINAL, [polled(rows)])

    def txn(
        self,
        *micro: SentRecord | Polled,
        process: int = 0,
        outcome: OperationOutcome = OperationOutcome.OK,
    ) -> Story:
        return self.add(process, Function.TXN, micro, outcome)

    def assign(self, *keys: Key, process: int = 9) -> Story:
        return self.add(process, Function.ASSIGN, keys=keys)

    def subscribe(self, *keys: Key, process: int = 9) -> Story:
        return self.add(process, Function.SUBSCRIBE, keys=keys)

    @property
    def history(self) -> History:
        return History(self.terms, self.operations)


def polled(rows: Rows) -> Polled:
    return Polled({key: list(records) for key, records in rows.items()})


def dense(*values: Value, start: int = 0) -> list[tuple[int, Value]]:
    """The values at consecutive offsets."""
    return list(enumerate(values, start))


def random_clean(seed: int, *, sends: int = 300, keys: int = 3, producers: int = 3) -> History:
    """A run in which everything goes well, outages included.

    Producers send through unknown and failed outcomes, assigned readers follow in steps of any
    size, one reader repeats a poll that failed, and two final readers read everything.
    """
    rng = random.Random(seed)
    story = Story()
    logs: dict[Key, list[Value]] = {key: [] for key in range(keys)}
    next_value = dict.fromkeys(range(keys), 0)
    positions = {process: dict.fromkeys(range(keys), 0) for process in (10, 11)}
    for process in positions:
        story.assign(*range(keys), process=process)
    for _ in range(sends):
        key, process = rng.randrange(keys), rng.randrange(producers)
        value = next_value[key]
        next_value[key] += 1
        outcome = rng.choices(list(OperationOutcome), weights=[90, 4, 6])[0]
        is_there = outcome is OperationOutcome.OK or (
            outcome is OperationOutcome.INFO and rng.random() < 0.5
        )
        offset = len(logs[key]) if is_there else None
        if is_there:
            logs[key].append(value)
        acknowledged = offset if outcome is OperationOutcome.OK else None
        story.send(value, acknowledged, process=process, key=key, outcome=outcome)
        if rng.random() < 0.3:
            _read_on(rng, story, logs, positions)
    for process in (90, 91):
        story.assign(*range(keys), process=process)
        for key in range(keys):
            middle = rng.randint(0, len(logs[key]))
            for part in (dense(*logs[key])[:middle], dense(*logs[key])[middle:]):
                if part:
                    story.final({key: part}, process=process)
    return story.history


def _read_on(
    rng: random.Random, story: Story, logs: dict[Key, list[Value]],
    positions: dict[int, dict[Key, int]],
) -> None:  # fmt: skip
    process = rng.choice(list(positions))
    rows: dict[Key, list[tuple[int, Value]]] = {}
    for key in rng.sample(list(logs), 2):
        start = positions[process][key]
        end = min(len(logs[key]), start + rng.randint(0, 8))
        if end > start:
            rows[key] = dense(*logs[key])[start:end]
    outcome = OperationOutcome.INFO if rng.random() < 0.1 else OperationOutcome.OK
    story.poll(rows, process=process, outcome=outcome)
    if outcome is OperationOutcome.OK:
        for key, records in rows.items():
            positions[process][key] += len(records)
