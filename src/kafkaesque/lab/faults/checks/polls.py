"""Order in which one consumer sees the records of a key: no step back, nothing left out.

Positions are compared by rank in the version order, so offsets that never held a record (control
records, compacted ones) are no skip. A consumer's memory of a key ends where its position was
moved by something else than reading.
"""

from __future__ import annotations

from collections.abc import Iterator

from kafkaesque.lab.faults.checks.anomalies import Anomaly, Name
from kafkaesque.lab.faults.checks.history import Function, Key, Operation, Outcome, Value
from kafkaesque.lab.faults.checks.observations import KeyLog, Observations

_Last = tuple[int, int, Value]
"""Offset of the last record read, the operation that did, its value."""


class _Process:
    """What one consumer remembers."""

    __slots__ = ("is_subscribed", "last")

    def __init__(self) -> None:
        self.last: dict[Key, _Last] = {}
        self.is_subscribed = False

    def moved(self, operation: Operation) -> None:
        if operation.f in (Function.ASSIGN, Function.SUBSCRIBE):
            self.is_subscribed = operation.f is Function.SUBSCRIBE
            self.last = {key: at for key, at in self.last.items() if key in operation.keys}
        for key in operation.rebalanced:
            self.last.pop(key, None)


def find_poll_anomalies(observed: Observations) -> Iterator[Anomaly]:
    processes: dict[int, _Process] = {}
    for operation in observed.reading:
        process = processes.setdefault(operation.process, _Process())
        process.moved(operation)
        if operation.outcome is not Outcome.OK:
            continue
        for key, records in _polled_by_key(operation).items():
            log = observed.log(key)
            yield from _between(process, operation, key, log, records[0])
            if key not in operation.rebalanced:
                yield from _inside(operation, key, log, records)
            process.last[key] = (records[-1][0], operation.index, records[-1][1])


def _polled_by_key(operation: Operation) -> dict[Key, list[tuple[int, Value]]]:
    """All that an operation read of each key, over its polls."""
    polls = operation.polls
    if len(polls) == 1:
        return {key: records for key, records in polls[0].records.items() if records}
    gathered: dict[Key, list[tuple[int, Value]]] = {}
    for poll in polls:
        for key, records in poll.records.items():
            if records:
                gathered.setdefault(key, []).extend(records)
    return gathered


def _between(
    process: _Process, operation: Operation, key: Key, log: KeyLog, first: tuple[int, Value]
) -> Iterator[Anomaly]:
    last = process.last.get(key)
    if last is None:
        return
    step = log.index[first[0]] - log.index[last[0]]
    if step == 1:
        return
    if step > 1:
        name = Name.SUBSCRIBED_POLL_SKIP if process.is_subscribed else Name.POLL_SKIP
        did = f"jumped over {step - 1} record(s)"
    elif process.is_subscribed:
        name, did = Name.SUBSCRIBED_NONMONOTONIC_POLL, "went back"
    else:
        name, did = Name.NONMONOTONIC_POLL, "went back"
    yield Anomaly(
        name,
        key,
        (last[2], first[1]),
        (last[0], first[0]),
        (last[1], operation.index),
        f"process {operation.process} {did} from offset {last[0]} to {first[0]}",
    )


def _inside(
    operation: Operation, key: Key, log: KeyLog, records: list[tuple[int, Value]]
) -> Iterator[Anomaly]:
    index = log.index
    ranks = [index[offset] for offset, _ in records]
    if ranks[-1] - ranks[0] == len(ranks) - 1 and ranks == list(range(ranks[0], ranks[-1] + 1)):
        return
    for place in range(1, len(ranks)):
        step = ranks[place] - ranks[place - 1]
        if step == 1:
            continue
        (before, value_before), (after, value_after) = records[place - 1], records[place]
        yield Anomaly(
            Name.INT_POLL_SKIP if step > 1 else Name.INT_NONMONOTONIC_POLL,
            key,
            (value_before, value_after),
            (before, after),
            (operation.index,),
            f"one poll of process {operation.process} has offset {after} behind {before}",
        )
