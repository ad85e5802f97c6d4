"""Order in which the records of one producer stand in a key: as it sent them."""

from __future__ import annotations

from collections.abc import Iterator

from kafkaesque.lab.faults.checks.anomalies import Anomaly, Name
from kafkaesque.lab.faults.checks.history import Function, Key, Operation, Outcome, Sent, Value
from kafkaesque.lab.faults.checks.observations import Observations

_Last = tuple[int, int, Value]
"""Offset of the last record sent, the operation that did, its value."""


def find_send_anomalies(observed: Observations) -> Iterator[Anomaly]:
    processes: dict[int, dict[Key, _Last]] = {}
    for operation, sends in observed.sending:
        if operation.outcome is Outcome.FAIL:
            continue
        inside: dict[Key, _Last] = {}
        memory = processes.setdefault(operation.process, {})
        for sent in sends:
            offset = observed.log(sent.key).first_offset(sent.value)
            if offset is None:
                continue
            earlier = inside.get(sent.key)
            if earlier is not None:
                yield from _inside(observed, operation, sent, offset, earlier)
            else:
                yield from _between(operation, sent, offset, memory.get(sent.key))
            inside[sent.key] = memory[sent.key] = (offset, operation.index, sent.value)


def _between(
    operation: Operation, sent: Sent, offset: int, last: _Last | None
) -> Iterator[Anomaly]:
    if last is not None and offset <= last[0]:
        yield Anomaly(
            Name.NONMONOTONIC_SEND,
            sent.key,
            (last[2], sent.value),
            (last[0], offset),
            (last[1], operation.index),
            f"process {operation.process} sent {last[2]} before {sent.value}, "
            f"and they stand at the offsets {last[0]} and {offset}",
        )


def _inside(
    observed: Observations, operation: Operation, sent: Sent, offset: int, earlier: _Last
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
            f"and they stand at the offsets {earlier[0]} and {offset}",
        )
