"""Observations of each key in a history: its writers, the value at each offset, what was read. No I/O.

The checks use these derived structures, which contain no verdicts themselves. They take one pass over the polls and two over the sends. The loops over records are optimized for
speed, since a long run has millions.
"""

from __future__ import annotations

from collections.abc import Iterable

from kafkaesque.lab.faults.checks.history import (
    ClientOperation,
    Function,
    History,
    HistoryUnusable,
    Key,
    OperationOutcome,
    Polled,
    SentRecord,
    Terms,
    Value,
)


class KeyLog:
    """One key as seen by all clients together."""

    __slots__ = (
        "conflicts",
        "final_offsets",
        "final_read",
        "first_seen",
        "index",
        "more_offsets",
        "offset_of",
        "ok_read",
        "value_at",
        "writers",
    )

    def __init__(self) -> None:
        self.writers: dict[Value, ClientOperation] = {}
        self.value_at: dict[int, Value] = {}
        self.conflicts: dict[int, set[Value]] = {}
        """Offsets with more than one value, with all of them."""
        self.offset_of: dict[Value, int] = {}
        self.more_offsets: dict[Value, set[int]] = {}
        """Values at more than one offset, with all of them."""
        self.ok_read: set[Value] = set()
        self.final_read: set[Value] = set()
        self.final_offsets: set[int] = set()
        self.first_seen: dict[Value, int] = {}
        """The index of an operation that polled the value."""
        self.index: dict[int, int] = {}
        """The version order: rank of each offset among those observed, holes left out."""

    def place(self, offset: int, value: Value) -> None:
        """A client saw `value` at `offset`."""
        known = self.value_at.setdefault(offset, value)
        if known != value:
            self.conflicts.setdefault(offset, {known}).add(value)
        at = self.offset_of.setdefault(value, offset)
        if at != offset:
            self.more_offsets.setdefault(value, {at}).add(offset)

    def place_all(self, records: Iterable[tuple[int, Value]], operation_index: int) -> None:
        """`place` for each, inlined: this is the hot loop of the checker."""
        value_at, offset_of, first_seen = self.value_at, self.offset_of, self.first_seen
        for offset, value in records:
            if value_at.setdefault(offset, value) != value or (
                offset_of.setdefault(value, offset) != offset
            ):
                self.place(offset, value)
            first_seen.setdefault(value, operation_index)

    def first_offset(self, value: Value) -> int | None:
        more = self.more_offsets.get(value)
        return min(more) if more else self.offset_of.get(value)

    def last_offset(self, value: Value) -> int | None:
        more = self.more_offsets.get(value)
        return max(more) if more else self.offset_of.get(value)


class Observations:
    """The key logs of a history."""

    def __init__(self, history: History) -> None:
        self.terms: Terms = history.terms
        self.operations = history.operations
        self.keys: dict[Key, KeyLog] = {}
        self.has_final_reads = False
        self.sending: list[tuple[ClientOperation, list[SentRecord]]] = []
        """The operations that sent something, with their records."""
        self.reading: list[ClientOperation] = []
        """The operations of consumers, including those that also sent."""
        self._damaged = [(d.key, d.first_offset, d.last_offset) for d in history.terms.damaged]
        self._divide()
        self._take_writers()
        self._take_polls()
        self._take_sends()
        for log in self.keys.values():
            log.index = {offset: rank for rank, offset in enumerate(sorted(log.value_at))}

    def log(self, key: Key) -> KeyLog:
        log = self.keys.get(key)
        if log is None:
            log = self.keys[key] = KeyLog()
        return log

    def must_have_committed(self, operation: ClientOperation) -> bool:
        """Whether it was acknowledged or one of its values was read: then all of them must be in the log."""
        if operation.outcome is OperationOutcome.OK:
            return True
        if operation.outcome is OperationOutcome.FAIL:
            return False
        return any(sent.value in self.log(sent.key).ok_read for sent in operation.sends)

    def is_damaged(self, key: Key, offset: int | None) -> bool:
        """Whether the run destroyed its only copy."""
        return offset is not None and any(
            key == damaged and first <= offset <= last for damaged, first, last in self._damaged
        )

    def _divide(self) -> None:
        for operation in self.operations:
            sends = operation.sends
            if sends:
                self.sending.append((operation, sends))
            if len(sends) < len(operation.micro) or not sends:
                self.reading.append(operation)

    def _take_writers(self) -> None:
        for operation, sends in self.sending:
            for sent in sends:
                writer = self.log(sent.key).writers.setdefault(sent.value, operation)
                if writer is not operation:
                    raise HistoryUnusable(
                        f"value {sent.value} of key {sent.key} was sent by operations "
                        f"{writer.index} and {operation.index}"
                    )

    def _take_polls(self) -> None:
        for operation in self.reading:
            is_ok = operation.outcome is OperationOutcome.OK
            is_final = operation.f is Function.FINAL
            self.has_final_reads |= is_final
            for one in operation.micro:
                if not isinstance(one, Polled):
                    continue
                for key, records in one.records.items():
                    log = self.log(key)
                    # Polls of every outcome: a consumer must never return uncommitted records.
                    log.place_all(records, operation.index)
                    if is_ok:
                        values = [value for _, value in records]
                        log.ok_read.update(values)
                        if is_final:
                            log.final_read.update(values)
                            log.final_offsets.update(offset for offset, _ in records)

    def _take_sends(self) -> None:
        for operation, sends in self.sending:
            if self.must_have_committed(operation):
                for sent in sends:
                    if sent.offset is not None:
                        self.log(sent.key).place(sent.offset, sent.value)
