"""Checks of order: each consumer reads a key without going back or skipping, and the records of each
producer are in the order in which it sent them.

Positions are compared by rank among the observed offsets, so offsets that never held a record (control
records, compacted ones) are no skip. A consumer's position in a key is forgotten when it was moved by
anything but reading.
"""

from __future__ import annotations

from collections.abc import Iterator

from kafkaesque.lab.faults.checks.anomalies import Anomaly, Name
from kafkaesque.lab.faults.checks.history import (
    ClientOperation,
    Function,
    Key,
    OperationOutcome,
    SentRecord,
    Value,
)
from kafkaesque.lab.faults.checks.observations import KeyLog, Observations

_Last = tuple[int, int, Value]
"""Offset of the last record read or sent, the operation that did it, its value."""


class _Process:
    """The positions of one consumer."""

    __slots__ = ("is_subscribed", "last")

    def __init__(self) -> None:
        self.last: dict[Key, _Last] = {}
        self.is_subscribed = False

    def moved(self, operation: ClientOperation) -> None:
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
        if operation.outcome is not OperationOutcome.OK:
            continue
        for key, records in _polled_by_key(operation).items():
            log = observed.log(key)
            yield from _between(process, operation, key, log, records[0])
            if key not in operation.rebalanced:
                yield from _inside(operation, key, log, records)
            process.last[key] = (records[-1][0], operation.index, records[-1][1])


def _polled_by_key(operation: ClientOperation) -> dict[Key, list[tuple[int, Value]]]:
    """Everything an operation read of each key, over its polls."""
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
    process: _Process, operation: ClientOperation, key: Key, log: KeyLog, first: tuple[int, Value]
) -> Iterator[Anomaly]:
    last = process.last.get(key)
    if last is None:
        return
    step = log.index[first[0]] - log.index[last[0]]
    if step == 1:
        return
    if step > 1:
        name = Name.SUBSCRIBED_POLL_SKIP if process.is_subscribed else Name.POLL_SKIP
        did = f"skipped {step - 1} record(s)"
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
    operation: ClientOperation, key: Key, log: KeyLog, records: list[tuple[int, Value]]
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
            f"one poll of process {operation.process} has offset {after} after {before}",
        )


def find_send_anomalies(observed: Observations) -> Iterator[Anomaly]:
    processes: dict[int, dict[Key, _Last]] = {}
    for operation, sends in observed.sending:
        if operation.outcome is OperationOutcome.FAIL:
            continue
        inside: dict[Key, _Last] = {}
        memory = processes.setdefault(operation.process, {})
        for sent in sends:
            offset = observed.log(sent.key).first_offset(sent.value)
            if offset is None:
                continue
            earlier = inside.get(sent.key)
            if earlier is not None:
                yield from _within_operation(observed, operation, sent, offset, earlier)
            else:
                yield from _between_operations(operation, sent, offset, memory.get(sent.key))
            inside[sent.key] = memory[sent.key] = (offset, operation.index, sent.value)


def _between_operations(
    operation: ClientOperation, sent: SentRecord, offset: int, last: _Last | None
) -> Iterator[Anomaly]:
    if last is not None and offset <= last[0]:
        yield Anomaly(
            Name.NONMONOTONIC_SEND,
            sent.key,
            (last[2], sent.value),
            (last[0], offset),
            (last[1], operation.index),
            f"process {operation.process} sent {last[2]} before {sent.value}, "
            f"and they are at the offsets {last[0]} and {offset}",
        )


def _within_operation(
    observed: Observations,
    operation: ClientOperation,
    sent: SentRecord,
    offset: int,
    earlier: _Last,
) -> Iterator[Anomaly]:
    name = None
    if offset <= earlier[0]:
        name = Name.INT_NONMONOTONIC_SEND
    elif operation.f is Function.TXN:
        index = observed.log(sent.key).index
        if index[offset] - index[earlier[0]] > 1:
            name = Name.INT_SEND_SKIP
    if name is not None:
        yield Anomaly(
            name,
            sent.key,
            (earlier[2], sent.value),
            (earlier[0], offset),
            (operation.index,),
            f"operation {operation.index} sent {earlier[2]} before {sent.value}, "
            f"and they are at the offsets {earlier[0]} and {offset}",
        )
