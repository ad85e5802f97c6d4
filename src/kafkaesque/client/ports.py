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


class OffsetGone(LogError):
    """The log no longer holds the offset to read from, and the reader was told not to skip."""


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


class Rebalance(Protocol):
    """Hears which partitions of a group are this reader's.

    All three run inside `read` (or `close`), which waits for them. They may use the reader: its
    `commit`, `committed`, `seek` and `pause`, but not its `read`. What they raise, `read` raises.
    """

    async def assigned(self, places: frozenset[TopicPartition]) -> None:
        """They are ours now, and none of their records has been handed out. A `seek` in here says
        where they begin; otherwise it is where the group committed."""
        ...

    async def revoked(self, places: frozenset[TopicPartition]) -> None:
        """They go to another member when this returns: a commit in here is still ours."""
        ...

    async def lost(self, places: frozenset[TopicPartition]) -> None:
        """The group went on without us; they may long be another's. A commit would be refused."""
        ...


@dataclass(frozen=True, slots=True)
class Subscription:
    """Read topics as a member of a consumer group, which shares out the partitions."""

    topics: Sequence[str]
    group: str
    start: Start = Start.BEGINNING
    listener: Rebalance | None = None


@dataclass(frozen=True, slots=True)
class Assignment:
    """Read just these partitions from just these offsets, outside of any group."""

    offsets: Mapping[TopicPartition, Offset]
    strict: bool = False
    """True: `read` raises OffsetGone where the log begins later; False: it reads on from there."""


@dataclass(frozen=True, slots=True)
class CommitPoint:
    """How far a group has come in a partition: `offset` is the next to read."""

    offset: Offset
    metadata: str = ""
    """A few bytes of the member's own, kept beside the offset."""


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

    async def commit(self, points: Mapping[TopicPartition, CommitPoint] | None = None) -> None:
        """Commit `points`, or `positions`, to the consumer group. Only for a Subscription."""
        ...

    async def committed(
        self, places: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, CommitPoint]:
        """What the group has committed; places without a commit are absent. Only for a
        Subscription."""
        ...

    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are this reader's now."""
        ...

    async def seek(self, place: TopicPartition, offset: Offset) -> None:
        """Read `place`, which must be assigned, on from `offset`."""
        ...

    async def pause(self, places: Iterable[TopicPartition]) -> None:
        """Hand out nothing of these until `resume`; the group membership goes on."""
        ...

    async def resume(self, places: Iterable[TopicPartition]) -> None: ...

    async def add(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        """Read these too, from these offsets; the others are not disturbed. Only for an
        Assignment, and only places that are not assigned yet."""
        ...

    async def drop(self, places: Iterable[TopicPartition]) -> None:
        """Read these no longer. Only for an Assignment."""
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

    async def send_offsets(
        self, reader: LogReader, points: Mapping[TopicPartition, CommitPoint] | None = None
    ) -> None:
        """Inside a transaction: commit `points`, or the reader's positions, to its group with it."""
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

    async def topic_ids(self, names: Iterable[str]) -> Mapping[str, TopicId]:
        """The id of each topic: a topic deleted and made anew has another. TopicUnknown if one is
        not there."""
        ...

    async def partition_count(self, topic: str) -> int:
        """TopicUnknown if there is no such topic."""
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
