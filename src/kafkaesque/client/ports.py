"""The port between services and a log: write, read, create topics. Protocols and values only.

Every failure of a log is a LogError. Delivery is awaited: when `send` returns, the records are in
the log as durably as the topic's settings say, once each and in order per partition (the writer is
idempotent). If that is not certain, it raises LogError.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from kafkaesque.events.topics import TopicSpec
from kafkaesque.model.ids import (
    NO_TIMESTAMP,
    Offset,
    PartitionIndex,
    TimestampMs,
    TopicId,
    TopicPartition,
)

Headers = tuple[tuple[str, bytes | None], ...]


class LogError(Exception):
    """The operation failed, or it is not known whether it succeeded."""


class LogUnavailable(LogError):
    """No broker answered in time, or none let us in. Trying again later may help."""


class DeliveryFailed(LogError):
    """At least one record was not acknowledged. It may or may not be in the log."""


class TopicUnknown(LogError):
    """The topic or partition does not exist."""


class TransactionsUnsupported(LogError):
    """The log has no transactions, or this client may not use them."""


class WriterFenced(LogError):
    """A newer writer with the same transactional id has taken over; this one must stop."""


class OffsetGone(LogError):
    """The log no longer holds the offset to read from, and the reader is strict."""


@dataclass(frozen=True, slots=True)
class Record:
    """A record to write. Without `partition` its key decides; without key any partition is used."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    partition: PartitionIndex | None = None
    timestamp_ms: TimestampMs = NO_TIMESTAMP
    """-1: the time of sending."""


@dataclass(frozen=True, slots=True)
class Received:
    """A record that was read from the log."""

    topic: str
    partition: PartitionIndex
    offset: Offset
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp_ms: TimestampMs = NO_TIMESTAMP


class Start(Enum):
    """Where a group starts to read a partition without a committed offset."""

    BEGINNING = "earliest"
    END = "latest"


class Rebalance(Protocol):
    """Listener for changes of the partitions that a group assigns to this reader.

    All methods run inside `read` (or `close`), which waits for them. They may use the reader's
    `commit`, `committed`, `seek` and `pause`, but not its `read`. `read` raises what they raise.
    """

    async def assigned(self, places: frozenset[TopicPartition]) -> None:
        """The partitions were assigned; none of their records has been returned yet. They start at the
        committed offset unless this method seeks."""
        ...

    async def revoked(self, places: frozenset[TopicPartition]) -> None:
        """The partitions go to another member when this returns. A commit in here still counts."""
        ...

    async def lost(self, places: frozenset[TopicPartition]) -> None:
        """The group removed this member; others may own the partitions. A commit would be refused."""
        ...


@dataclass(frozen=True, slots=True)
class Subscription:
    """Read topics as a member of a consumer group, which assigns the partitions."""

    topics: Sequence[str]
    group: str
    start: Start = Start.BEGINNING
    listener: Rebalance | None = None


@dataclass(frozen=True, slots=True)
class Assignment:
    """Read these partitions from these offsets, outside of any group."""

    offsets: Mapping[TopicPartition, Offset]
    strict: bool = False
    """If the log starts after the offset: True raises OffsetGone, False reads from the log start."""


@dataclass(frozen=True, slots=True)
class CommitPoint:
    """A committed position: `offset` is the next to read."""

    offset: Offset
    metadata: str = ""
    """Text that the member stores with the offset."""


@dataclass(frozen=True, slots=True)
class WriterOptions:
    """Options of a writer."""

    transactional_id: str | None = None
    """Identifies the writer across restarts: a new one fences the old. None: no transactions."""
    buffered_records_max: int = 10_000
    """Records in flight; a `send` beyond that waits."""
    linger_ms: int = 5
    delivery_timeout_ms: int = 30_000
    """A record without acknowledgement fails after this long."""


@dataclass(frozen=True, slots=True)
class Span:
    """Readable offsets of a partition: `start` <= offset < `end`."""

    start: Offset
    end: Offset


class LogReader(Protocol):
    """One consumer. Not to be used by two tasks at once."""

    async def read(self, count_max: int = 500, wait_s: float = 1.0) -> Sequence[Received]:
        """Records that are there now, or the first that arrive within `wait_s`; else none."""
        ...

    async def positions(self) -> Mapping[TopicPartition, Offset]:
        """The offset after the last record returned, for each partition that was read."""
        ...

    async def commit(self, points: Mapping[TopicPartition, CommitPoint] | None = None) -> None:
        """Commit `points`, or `positions`, to the consumer group. Only for a Subscription."""
        ...

    async def committed(
        self, places: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, CommitPoint]:
        """The group's committed positions, without partitions that have none. Only for a
        Subscription."""
        ...

    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are assigned to this reader now."""
        ...

    async def seek(self, place: TopicPartition, offset: Offset) -> None:
        """Continues at `offset` of `place`, which must be assigned."""
        ...

    async def pause(self, places: Iterable[TopicPartition]) -> None:
        """Returns no records of these until `resume`. The group membership stays."""
        ...

    async def resume(self, places: Iterable[TopicPartition]) -> None: ...

    async def add(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        """Reads these too, from these offsets; the others are unaffected. Only for an Assignment, and
        only partitions that are not assigned yet."""
        ...

    async def drop(self, places: Iterable[TopicPartition]) -> None:
        """Stops reading these. Only for an Assignment."""
        ...

    async def close(self) -> None: ...


class LogWriter(Protocol):
    """One idempotent producer. Several tasks may send at once."""

    @property
    def transactional(self) -> bool:
        """Whether `transaction` may be used."""
        ...

    async def send(self, records: Iterable[Record]) -> Sequence[Offset]:
        """Writes records and waits until all are acknowledged. Returns their offsets in order.

        Waits while the buffer is full. Raises DeliveryFailed if any record failed. Inside a
        transaction, readers see the records only after the commit.
        """
        ...

    def transaction(self) -> AbstractAsyncContextManager[None]:
        """Commits everything that is sent in the block; aborts it if the block raises.

        Raises TransactionsUnsupported on a writer that is not transactional.
        """
        ...

    async def send_offsets(
        self, reader: LogReader, points: Mapping[TopicPartition, CommitPoint] | None = None
    ) -> None:
        """Inside a transaction: commits `points`, or the reader's positions, to its group with it."""
        ...

    async def close(self) -> None:
        """Waits for records in flight. An open transaction is aborted."""
        ...


class LogAdmin(Protocol):
    """Creates and describes topics."""

    async def ensure_topics(self, topics: Iterable[TopicSpec]) -> Sequence[str]:
        """Creates topics that do not exist and returns their names. Others stay as they are."""
        ...

    async def spans(self, topic: str) -> Mapping[TopicPartition, Span]:
        """The readable offsets of each partition. Raises TopicUnknown."""
        ...

    async def topic_ids(self, names: Iterable[str]) -> Mapping[str, TopicId]:
        """The id of each topic; a topic that is deleted and created again has a new one. Raises
        TopicUnknown."""
        ...

    async def partition_count(self, topic: str) -> int:
        """Raises TopicUnknown."""
        ...


class Log(Protocol):
    """Opens writers and readers of a log, which the caller closes."""

    @property
    def admin(self) -> LogAdmin: ...

    async def open_writer(self, options: WriterOptions = ...) -> LogWriter:
        """Raises TransactionsUnsupported if there is a transactional id and the log has no transactions."""
        ...

    async def open_reader(self, what: Subscription | Assignment) -> LogReader:
        """Readers see only committed records."""
        ...

    async def close(self) -> None: ...
