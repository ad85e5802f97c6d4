"""The values that go into and come out of the coordinator's rules. No behaviour.

Requests and answers are the protocol's messages without their wire versions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from kafkaesque.model.errors import ErrorCode
from kafkaesque.model.ids import (
    NO_PRODUCER,
    NO_TIMESTAMP,
    ProducerEpoch,
    ProducerId,
    TimestampMs,
    TopicPartition,
)

NO_PRODUCER_EPOCH: Final = ProducerEpoch(-1)
EPOCH_MAX: Final = ProducerEpoch(2**15 - 1)
EPOCH_EXHAUSTED: Final = ProducerEpoch(EPOCH_MAX - 1)
"""No client ever works with a greater one: the last is kept to fence whoever had this one."""

OLD_FLOW: Final = 0
NEW_FLOW: Final = 2
"""`transaction.version` of a client: 2 raises the epoch with every transaction (KIP-890)."""


class Moment(NamedTuple):
    """Now, on both clocks: timeouts count on `monotonic`, records and expiry on `wall_ms`."""

    monotonic: float
    wall_ms: TimestampMs


class ProducerIdentity(NamedTuple):
    producer_id: ProducerId
    epoch: ProducerEpoch


NOBODY: Final = ProducerIdentity(NO_PRODUCER, NO_PRODUCER_EPOCH)


@dataclass(frozen=True, slots=True, kw_only=True)
class InitRequest:
    transactional_id: str
    timeout_ms: int
    known: ProducerIdentity = NOBODY
    """What the producer says that it is (KIP-360); NOBODY for one that just started."""
    spare_producer_id: ProducerId = NO_PRODUCER
    """A fresh id, in case one is needed: see `TransactionRegistry.wants_producer_id`."""
    connected_at: float | None = None
    """When the client's connection was made that it came over: see `callers`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InitAnswer:
    error: ErrorCode = ErrorCode.NONE
    producer: ProducerIdentity = NOBODY


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionsRequest:
    """AddPartitionsToTxn, AddOffsetsToTxn, and their verify-only form."""

    transactional_id: str
    producer: ProducerIdentity
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True, kw_only=True)
class AddAnswer:
    """The partitions are all in the transaction, or none was added."""

    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyAnswer:
    errors: Mapping[TopicPartition, ErrorCode]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndRequest:
    transactional_id: str
    producer: ProducerIdentity
    is_commit: bool
    flow: int
    """OLD_FLOW or NEW_FLOW: the latter for EndTxn from version 5 on."""
    spare_producer_id: ProducerId = NO_PRODUCER


@dataclass(frozen=True, slots=True, kw_only=True)
class EndAnswer:
    """`producer` is what the client goes on with; only the new flow is told."""

    error: ErrorCode = ErrorCode.NONE
    producer: ProducerIdentity = NOBODY


AnswerValue: TypeAlias = InitAnswer | AddAnswer | VerifyAnswer | EndAnswer


class DescribedTransaction(NamedTuple):
    transactional_id: str
    error: ErrorCode = ErrorCode.NONE
    state: str = ""
    timeout_ms: int = -1
    started_ms: TimestampMs = NO_TIMESTAMP
    producer: ProducerIdentity = NOBODY
    partitions: tuple[TopicPartition, ...] = ()


class LogRecord(NamedTuple):
    """A record of the internal topic; value None is a tombstone."""

    key: bytes
    value: bytes | None


class Answer(NamedTuple):
    """What the request that came with `token` is told. A token is answered once."""

    token: int
    value: AnswerValue


class Markers(NamedTuple):
    """The end of a transaction, to be written to each of its partitions until all have it.

    `producer` fences: a partition that has the marker takes nothing of an older epoch any more.
    """

    transactional_id: str
    producer: ProducerIdentity
    is_commit: bool
    flow: int
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Effects:
    """What the driver must do, in this order, once a call has returned:

    1. append `records` to the log and wait until they are committed;
    2. call `replay` with each of them, in order;
    3. deliver `answers`, and see to it that `markers` are written, telling `markers_written` of
       each partition that has them. Not before: a marker whose decision is lost cannot be unsaid.

    Effects of one registry are finished in the order of the calls: an answer without records waits
    for the appends of earlier calls, because it was decided on state which those records make
    durable. If an append fails, the driver drops the registry and rebuilds one from the log.
    """

    records: tuple[LogRecord, ...] = ()
    answers: tuple[Answer, ...] = ()
    markers: tuple[Markers, ...] = ()


NOTHING: Final = Effects()
