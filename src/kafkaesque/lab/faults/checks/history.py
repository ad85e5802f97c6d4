"""What clients did and saw: operations as values, and their form in a file. No I/O, no clock.

An operation is one call of one client: sending, polling, or a transaction of both. Its outcome says
what is known about it, and getting that right is half of the test (research/reliability.md 2.1,
after Jepsen's kafka workload):

    ok      it definitely happened
    fail    it definitely did not, and never will
    info    nobody knows: timed out, connection lost, client gone

In a file each operation is one line of JSON behind one line with the terms it was recorded under.
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
"""A counter, unique in its key; a text for bytes that no writer of this run ever made."""


class HistoryUnusable(Exception):
    """The text is not a history, or contradicts itself in a way that no broker can cause."""


class Outcome(StrEnum):
    """What is known about an operation."""

    OK = "ok"
    FAIL = "fail"
    INFO = "info"


class Function(StrEnum):
    """What a client did. A FINAL poll is one of the readers from the beginning, after the run."""

    SEND = "send"
    POLL = "poll"
    FINAL = "final"
    TXN = "txn"
    ASSIGN = "assign"
    SUBSCRIBE = "subscribe"
    CRASH = "crash"


class Sent(msgspec.Struct, frozen=True, array_like=True, tag="s", gc=False):
    """One record sent; the offset is there if an acknowledgement told it."""

    key: Key
    offset: int | None
    value: Value


class Polled(msgspec.Struct, frozen=True, array_like=True, tag="p"):
    """What one poll returned: (offset, value) in the order of delivery, by key."""

    records: dict[Key, list[tuple[int, Value]]]


class Operation(msgspec.Struct, frozen=True, omit_defaults=True, rename={"outcome": "type"}):
    """One operation of one client. Indexes rise with the time of invocation."""

    index: int
    process: int
    """One producer and one consumer, used by one thread. A client that died comes back as another."""
    outcome: Outcome
    f: Function
    micro: tuple[Sent | Polled, ...] = ()
    keys: tuple[Key, ...] = ()
    """Of an assign or subscribe: all that the client reads from now on."""
    rebalanced: tuple[Key, ...] = ()
    """Keys whose position was moved during this operation by anything but reading."""
    invoked_us: int = 0
    completed_us: int = 0
    error: str = ""
    """What the client said, for people; no check reads it."""

    @property
    def sends(self) -> list[Sent]:
        return [one for one in self.micro if isinstance(one, Sent)]

    @property
    def polls(self) -> list[Polled]:
        return [one for one in self.micro if isinstance(one, Polled)]


class Damage(msgspec.Struct, frozen=True, array_like=True):
    """Offsets whose bytes a run destroyed where no other copy existed: nobody can serve them."""

    key: Key
    first_offset: int
    last_offset: int


class Terms(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the clients were promised in this history: it decides which anomalies are legal."""

    idempotent: bool = True
    """Producers were idempotent: a duplicate or a changed order is the broker's fault."""
    final_reads_complete: bool = True
    """The final readers reached the end of every key: what they did not see is not there."""
    dense_offsets: bool = True
    """No transactions and no compaction: an offset without a record is a hole."""
    damaged: tuple[Damage, ...] = ()


class History(msgspec.Struct, frozen=True):
    """All operations in the order of their indexes, and the terms."""

    terms: Terms
    operations: list[Operation]
    name: str = ""


class _Heading(msgspec.Struct, frozen=True):
    kafkaesque_history: int
    name: str
    terms: Terms


_encode = msgspec.json.encode
_decode_heading = msgspec.json.Decoder(_Heading).decode
_decode_operation = msgspec.json.Decoder(Operation).decode


def write_lines(history: History) -> Iterator[bytes]:
    """The history as lines of JSON, each with its line feed."""
    yield _encode(_Heading(FORMAT_VERSION, history.name, history.terms)) + b"\n"
    for operation in history.operations:
        yield _encode(operation) + b"\n"


def read_lines(lines: Iterable[bytes]) -> History:
    """The history that `write_lines` wrote; HistoryUnusable names the line that is wrong."""
    heading: _Heading | None = None
    operations: list[Operation] = []
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
        raise HistoryUnusable("there is no line in it")
    if heading.kafkaesque_history != FORMAT_VERSION:
        raise HistoryUnusable(f"format {heading.kafkaesque_history}, not {FORMAT_VERSION}")
    operations.sort(key=lambda operation: operation.index)
    return History(heading.terms, operations, heading.name)
