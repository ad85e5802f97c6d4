"""What a service may ask of a log: write, read, create topics. Protocols and values only.

Every failure of a log is a LogError. Delivery is awaited: when `send` returns, the records are in
the log as durably as its topic promises, once each and in order per partition (the writer is
idempotent), or LogError says that this is not known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from kafkaesque.events.topics import TopicSpec
from kafkaesque.model.ids import NO_TIMESTAMP, Offset, PartitionIndex, TimestampMs, TopicPartition

Headers = tuple[tuple[str, bytes | None], ...]


class LogError(Exception):
    """The log did not do what was asked, or it is not known whether it did."""


class LogUnavailable(LogError):
    """No broker answered in time. Trying again later may help."""


class DeliveryFailed(LogError):
    """At least one record was not acknowledged. It may or may not be in the log."""


class TopicUnknown(LogError):
    """There is no such topic or partition."""


class TransactionsUnsupported(LogError):
    """This log has no transactions, or this client may not use them."""


class WriterFenced(LogError):
    """A newer writer with the same transactional id has taken over; this one must stop."""


@dataclass(frozen=True, slots=True)
class Record:
    """A record to be written. Without `partition`, its key chooses; without key, chance."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    partition: PartitionIndex | None = None
    timestamp_ms: TimestampMs = NO_TIMESTAMP
    """-1: the time of sending."""


@dataclass(frozen=True, slots=True)
class Received:
    """A record as it stands in the log."""

    topic: str
    partition: PartitionIndex
    offset: Offset
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp_ms: TimestampMs = NO_TIMESTAMP


class Start(Enum):
    """Where a reader begins on a partition for which it is told nothing else."""

    BEGINNING = "earliest"
    END = "latest"


@dataclass(frozen=True, slots=True)
class Subscription:
    """Read topics as a member of a consumer group, which shares out the partitions."""

    topics: Sequence[str]
    group: str
    start: Start = Start.BEGINNING


@dataclass(frozen=True, slots=True)
class Assignment:
    """Read just these partitions from just these offsets, outside of any group."""

    offsets: Mapping[TopicPartition, Offset]


@dataclass(frozen=True, slots=True)
class WriterOptions:
    """How a writer writes."""

    transactional_id: str | None = None
    """Names this writer across restarts: a new one fences the old. None: no transactions."""
    buffered_records_max: int = 10_000
    """Records sent and not yet acknowledged; a `send` beyond that waits."""
    linger_ms: int = 5
    delivery_timeout_ms: int = 30_000
    """After this long without an acknowledgement a record counts as failed."""


@dataclass(frozen=True, slots=True)
class Span:
    """Offsets of a partition that can be read: `start` <= offset < `end`."""

    start: Offset
    end: Offset


class LogReader(Protocol):
    """One consumer. Not to be used by two tasks at once."""

    async def read(self, count_max: int = 500, wait_s: float = 1.0) -> Sequence[Received]:
        """What is there now, or what comes within `wait_s`; nothing if nothing comes."""
        ...

    async def positions(self) -> Mapping[TopicPartition, Offset]:
        """For each partition that has been read: the offset after the last record handed out."""
        ...

    async def commit(self) -> None:
        """Commit `positions` to the consumer group. Only for a Subscription."""
        ...

    async def close(self) -> None: ...


class LogWriter(Protocol):
    """One idempotent producer. Several tasks may send at once."""

    @property
    def transactional(self) -> bool:
        """Whether `transaction` may be used."""
        ...

    async def send(self, records: Iterable[Record]) -> Sequence[Offset]:
        """Write and wait until all are acknowledged; their offsets, in order.

        Waits while too much is buffered. DeliveryFailed if any record failed. Inside a transaction
        the offsets are assigned but readers see the records only after the commit.
        """
        ...

    def transaction(self) -> AbstractAsyncContextManager[None]:
        """All that is sent inside is seen together, or, if the block raises, never.

        TransactionsUnsupported on a writer that is not transactional.
        """
        ...

    async def send_offsets(self, reader: LogReader) -> None:
        """Inside a transaction: commit the reader's positions to its group with it."""
        ...

    async def close(self) -> None:
        """Wait for what is under way, then leave. A transaction under way is aborted."""
        ...


class LogAdmin(Protocol):
    """Questions about topics, and their creation."""

    async def ensure_topics(self, topics: Iterable[TopicSpec]) -> Sequence[str]:
        """Create those that are absent; the names of the created. Those present stay as they are."""
        ...

    async def spans(self, topic: str) -> Mapping[TopicPartition, Span]:
        """The readable offsets of each partition. TopicUnknown if there is no such topic."""
        ...


class Log(Protocol):
    """A way to a log: makes writers, readers, an admin. Close what you open."""

    @property
    def admin(self) -> LogAdmin: ...

    async def open_writer(self, options: WriterOptions = ...) -> LogWriter:
        """TransactionsUnsupported if the options ask for what this log does not have."""
        ...

    async def open_reader(self, what: Subscription | Assignment) -> LogReader:
        """Readers see committed records only."""
        ...

    async def close(self) -> None: ...
