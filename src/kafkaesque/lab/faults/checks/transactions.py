"""Checks of transactions: none reads itself, none reads in a cycle, none is seen in part."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise

from kafkaesque.lab.faults.checks.anomalies import Anomaly, Name
from kafkaesque.lab.faults.checks.history import (
    ClientOperation,
    Function,
    Key,
    OperationOutcome,
    SentRecord,
    Value,
)
from kafkaesque.lab.faults.checks.observations import Observations


def find_transaction_anomalies(observed: Observations) -> Iterator[Anomaly]:
    transactions = [operation for operation in observed.operations if operation.f is Function.TXN]
    if not transactions:
        return
    yield from _precommitted_reads(transactions)
    committed = [one for one in transactions if observed.must_have_committed(one)]
    yield from _write_cycles(observed, committed)
    yield from _read_cycles(observed, committed)
    yield from _aborted_and_seen(observed, transactions)
    yield from _torn(observed, committed)


def _precommitted_reads(transactions: list[ClientOperation]) -> Iterator[Anomaly]:
    for operation in transactions:
        own = {(sent.key, sent.value) for sent in operation.sends}
        for poll in operation.polls:
            for key, records in poll.records.items():
                for offset, value in records:
                    if (key, value) in own:
                        yield Anomaly(
                            Name.PRECOMMITTED_READ,
                            key,
                            (value,),
                            (offset,),
                            (operation.index,),
                            f"transaction {operation.index} read its own value {value}",
                        )


def _write_cycles(observed: Observations, committed: list[ClientOperation]) -> Iterator[Anomaly]:
    """G0 among transactions with several records; one with a single record cannot close a cycle."""
    placed: dict[Key, list[tuple[int, int]]] = {}
    for operation in committed:
        sends = operation.sends
        if len(sends) < 2:
            continue
        for sent in sends:
            offset = observed.log(sent.key).first_offset(sent.value)
            if offset is not None:
                placed.setdefault(sent.key, []).append((offset, operation.index))
    edges: dict[int, set[int]] = {}
    for places in placed.values():
        places.sort()
        for (_, before), (_, after) in pairwise(places):
            if before != after:
                edges.setdefault(before, set()).add(after)
    yield from _cycles(Name.G0, edges, "wrote in different orders")


def _read_cycles(observed: Observations, committed: list[ClientOperation]) -> Iterator[Anomaly]:
    both = {one.index for one in committed if one.sends and one.polls}
    edges: dict[int, set[int]] = {}
    for operation in committed:
        if operation.index not in both:
            continue
        for poll in operation.polls:
            for key, records in poll.records.items():
                writers = observed.log(key).writers
                for _, value in records:
                    writer = writers.get(value)
                    if writer is not None and writer.index in both and writer != operation:
                        edges.setdefault(writer.index, set()).add(operation.index)
    yield from _cycles(Name.G1C, edges, "read from one another")


def _cycles(name: Name, edges: dict[int, set[int]], did: str) -> Iterator[Anomaly]:
    for cycle in find_cycles(edges):
        text = f"transactions {', '.join(map(str, cycle))} {did}"
        yield Anomaly(name, None, (), (), tuple(cycle), text)


def _aborted_and_seen(
    observed: Observations, transactions: list[ClientOperation]
) -> Iterator[Anomaly]:
    for operation in transactions:
        if operation.outcome is not OperationOutcome.FAIL:
            continue
        seen = [sent for sent in operation.sends if sent.value in observed.log(sent.key).ok_read]
        if seen:
            yield _torn_anomaly(operation, seen, "was aborted, and its records were read")


class _ConsumerReads:
    """The values that one consumer read, and the ranges of each key it read without interruption."""

    __slots__ = ("last", "seen", "spans")

    def __init__(self) -> None:
        self.seen: dict[Key, set[Value]] = {}
        self.spans: dict[Key, list[list[int]]] = {}
        self.last: dict[Key, list[int]] = {}
        """The range that is still growing."""

    def take(self, operation: ClientOperation) -> None:
        if operation.f in (Function.ASSIGN, Function.SUBSCRIBE):
            self.last = {key: span for key, span in self.last.items() if key in operation.keys}
        for key in operation.rebalanced:
            self.last.pop(key, None)
        if operation.outcome is not OperationOutcome.OK:
            return
        for poll in operation.polls:
            for key, records in poll.records.items():
                if records:
                    self._read(key, records, from_start=operation.f is Function.FINAL)

    def _read(self, key: Key, records: list[tuple[int, Value]], *, from_start: bool) -> None:
        self.seen.setdefault(key, set()).update(value for _, value in records)
        span = self.last.get(key)
        if span is None:
            first = 0 if from_start and key not in self.spans else records[0][0]
            span = self.last[key] = [first, first]
            self.spans.setdefault(key, []).append(span)
        span[1] = max(span[1], records[-1][0])

    def passed(self, key: Key, offset: int) -> bool:
        spans = sorted(self.spans.get(key, ()))
        place = bisect_right(spans, [offset, float("inf")])
        return any(start <= offset <= end for start, end in spans[:place])

    def saw(self, sent: SentRecord) -> bool:
        return sent.value in self.seen.get(sent.key, ())


def _torn(observed: Observations, committed: list[ClientOperation]) -> Iterator[Anomaly]:
    """A reader saw one record of a transaction and passed the offset of another without seeing it."""
    readers: dict[int, _ConsumerReads] = {}
    final_readers: set[int] = set()
    for operation in observed.reading:
        readers.setdefault(operation.process, _ConsumerReads()).take(operation)
        if operation.f is Function.FINAL:
            final_readers.add(operation.process)
    for operation in committed:
        sends = operation.sends
        for process, reader in readers.items():
            missed = [sent for sent in sends if not reader.saw(sent)]
            if not missed or len(missed) == len(sends):
                continue
            read_all = process in final_readers and observed.terms.final_reads_complete
            torn = [sent for sent in missed if _was_passed(observed, reader, sent, read_all)]
            if torn:
                yield _torn_anomaly(operation, torn, f"was read by process {process} without these")


def _was_passed(
    observed: Observations, reader: _ConsumerReads, sent: SentRecord, read_all: bool
) -> bool:
    offset = observed.log(sent.key).first_offset(sent.value)
    if offset is None:
        return read_all
    return reader.passed(sent.key, offset) and not observed.is_damaged(sent.key, offset)


def _torn_anomaly(operation: ClientOperation, sends: list[SentRecord], did: str) -> Anomaly:
    return Anomaly(
        Name.TORN_TRANSACTION,
        sends[0].key,
        tuple(sent.value for sent in sends),
        tuple(sent.offset for sent in sends if sent.offset is not None),
        (operation.index,),
        f"transaction {operation.index} {did}: {', '.join(f'{s.key}/{s.value}' for s in sends)}",
    )


def find_cycles(edges: Mapping[int, Iterable[int]]) -> list[list[int]]:
    """The strongly connected components of more than one node, each sorted.

    Tarjan 1972, with an explicit stack: histories are long.
    """
    order: dict[int, int] = {}
    low: dict[int, int] = {}
    open_nodes: list[int] = []
    is_open: set[int] = set()
    cycles: list[list[int]] = []
    for root in edges:
        if root in order:
            continue
        walk = [(root, iter(edges.get(root, ())))]
        order[root] = low[root] = len(order)
        open_nodes.append(root)
        is_open.add(root)
        while walk:
            node, following = walk[-1]
            for target in following:
                if target not in order:
                    order[target] = low[target] = len(order)
                    open_nodes.append(target)
                    is_open.add(target)
                    walk.append((target, iter(edges.get(target, ()))))
                    break
                if target in is_open:
                    low[node] = min(low[node], order[target])
            else:
                walk.pop()
                if walk:
                    parent = walk[-1][0]
                    low[parent] = min(low[parent], low[node])
                if low[node] == order[node]:
                    part = _close(node, open_nodes, is_open)
                    if len(part) > 1:
                        cycles.append(sorted(part))
    return cycles


def _close(node: int, open_nodes: list[int], is_open: set[int]) -> list[int]:
    part = []
    while True:
        member = open_nodes.pop()
        is_open.discard(member)
        part.append(member)
        if member == node:
            return part
