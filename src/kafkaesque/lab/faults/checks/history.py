"""A history: the operations of all clients, and its file format. No I/O, no clock.

An operation is one call of one client: sending, polling, or a transaction of both. Its outcome is
what is known about it; getting that right is half of the test (after Jepsen's kafka workload):

    ok      it definitely happened
    fail    it definitely did not, and never will
    info    unknown: timed out, connection lost, client dead

In a file, one line of JSON has the terms, and each following line one operation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Final

import msgspec

FORMAT_VERSION: Final = 1

Key = int
"""One partition of one topic."""
Value = int | str
"""A counter, unique in its key; a string for bytes that no client of this run wrote."""


class HistoryUnusable(Exception):
    """Not a history, or one that contradicts itself in a way that no broker can cause."""


class OperationOutcome(StrEnum):
    """The known result of an operation."""

    OK = "ok"
    FAIL = "fail"
    INFO = "info"


class Function(StrEnum):
    """The kind of an operation. FINAL is a poll of the readers that read everything after the run."""

    SEND = "send"
    POLL = "poll"
    FINAL = "final"
    TXN = "txn"
    ASSIGN = "assign"
    SUBSCRIBE = "subscribe"
    CRASH = "crash"


class SentRecord(msgspec.Struct, frozen=True, array_like=True, tag="s", gc=False):
    """One record sent, with its offset if it was acknowledged."""

    key: Key
    offset: int | None
    value: Value


class Polled(msgspec.Struct, frozen=True, array_like=True, tag="p"):
    """The result of one poll: (offset, value) in the order of delivery, by key."""

    records: dict[Key, list[tuple[int, Value]]]


class ClientOperation(msgspec.Struct, frozen=True, omit_defaults=True, rename={"outcome": "type"}):
    """One operation of one client. Indexes rise with the time of invocation."""

    index: int
    process: int
    """One client, used by one thread. A client that died is replaced by one with another number."""
    outcome: OperationOutcome
    f: Function
    micro: tuple[SentRecord | Polled, ...] = ()
    keys: tuple[Key, ...] = ()
    """For assign and subscribe: all keys that the client reads from now on."""
    rebalanced: tuple[Key, ...] = ()
    """Keys whose position was moved during this operation by anything but reading."""
    invoked_us: int = 0
    completed_us: int = 0
    error: str = ""
    """The client's error message, for people; no check uses it."""

    @property
    def sends(self) -> list[SentRecord]:
        return [one for one in self.micro if isinstance(one, SentRecord)]

    @property
    def polls(self) -> list[Polled]:
        return [one for one in self.micro if isinstance(one, Polled)]


class DestroyedRange(msgspec.Struct, frozen=True, array_like=True):
    """Offsets whose only copy a run destroyed: no broker can serve them."""

    key: Key
    first_offset: int
    last_offset: int


class Terms(msgspec.Struct, frozen=True, omit_defaults=True):
    """The guarantees under which a history was recorded; they decide which anomalies are legal."""

    idempotent: bool = True
    """Producers were idempotent: a duplicate or a changed order is the broker's fault."""
    final_reads_complete: bool = True
    """The final readers reached the end of every key: what they did not see is not there."""
    dense_offsets: bool = True
    """No transactions and no compaction: an offset without a record is a hole."""
    damaged: tuple[DestroyedRange, ...] = ()


class History(msgspec.Struct, frozen=True):
    """All operations in the order of their indexes, and the terms."""

    terms: Terms
    operations: list[ClientOperation]
    name: str = ""


class _Heading(msgspec.Struct, frozen=True):
    kafkaesque_history: int
    name: str
    terms: Terms


_encode = msgspec.json.encode
_decode_heading = msgspec.json.Decoder(_Heading).decode
_decode_operation = msgspec.json.Decoder(ClientOperation).decode


def write_lines(history: History) -> Iterator[bytes]:
    """The history as lines of JSON, each with its line feed."""
    yield _encode(_Heading(FORMAT_VERSION, history.name, history.terms)) + b"\n"
    for operation in history.operations:
        yield _encode(operation) + b"\n"


def read_lines(lines: Iterable[bytes]) -> History:
    """The history that `write_lines` wrote; HistoryUnusable names the line that is wrong."""
    heading: _Heading | None = None
    operations: list[ClientOperation] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            if heading is None:
                heading = _decode_heading(line)
            else:
                operations.append(_decode_operation(line))
        except msgspec.MsgspecError as error:
            raise HistoryUnusable(f"line {number}: {error}") from error
    if heading is None:
        raise HistoryUnusable("the file is empty")
    if heading.kafkaesque_history != FORMAT_VERSION:
        raise HistoryUnusable(f"format {heading.kafkaesque_history}, not {FORMAT_VERSION}")
    operations.sort(key=lambda operation: operation.index)
    return History(heading.terms, operations, heading.name)
