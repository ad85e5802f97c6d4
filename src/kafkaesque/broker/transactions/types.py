"""The inputs, outputs, states and settings of the coordinator's rules.

Requests and answers are the protocol's messages without their wire versions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

from kafkaesque.model.errors import ErrorCode, InvalidConfig, InvariantBroken
from kafkaesque.model.ids import (
    NO_PRODUCER,
    NO_TIMESTAMP,
    ProducerEpoch,
    ProducerId,
    ProducerIdentity,
    TimestampMs,
    TopicPartition,
)
from kafkaesque.records.log_fields import LogRecord

NO_PRODUCER_EPOCH: Final = ProducerEpoch(-1)
EPOCH_MAX: Final = ProducerEpoch(2**15 - 1)
EPOCH_EXHAUSTED: Final = ProducerEpoch(EPOCH_MAX - 1)
"""The greatest epoch of a client: the last one is reserved for fencing."""

OLD_FLOW: Final = 0
NEW_FLOW: Final = 2
"""`transaction.version` of a client: 2 bumps the epoch with every transaction (KIP-890)."""


NOBODY: Final = ProducerIdentity(NO_PRODUCER, NO_PRODUCER_EPOCH)


@dataclass(frozen=True, slots=True, kw_only=True)
class InitRequest:
    transactional_id: str
    timeout_ms: int
    known: ProducerIdentity = NOBODY
    """The identity that the producer sent (KIP-360); NOBODY for one that just started."""
    spare_producer_id: ProducerId = NO_PRODUCER
    """A new id, if one is needed: see `TransactionRegistry.needs_producer_id`."""
    connected_at: float | None = None
    """When the client's connection was opened: see `connection_fence`."""


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
    """Either all partitions are in the transaction or none was added."""

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
    """`producer` is the client's identity from now on; sent in the new flow only."""

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


class TransactionAnswer(NamedTuple):
    """The answer to the request with `token`. A token is answered once."""

    token: int
    value: AnswerValue


class Markers(NamedTuple):
    """The end of a transaction, to be written to each of its partitions until all have it.

    A partition that has the marker rejects everything of an older epoch than `producer`'s.
    """

    transactional_id: str
    producer: ProducerIdentity
    is_commit: bool
    flow: int
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class TransactionEffects:
    """What the driver must do, in this order, once a call has returned:

    1. append `records` to the log and wait until they are committed;
    2. call `replay` with each of them, in order;
    3. deliver `answers`, and have `markers` written, calling `markers_written` for each partition
       that has them. Not before: a marker cannot be taken back if its decision is lost.

    The effects of one registry are completed in the order of the calls: an answer without records
    waits for the appends of earlier calls, because it depends on state that those records make
    durable. If an append fails, the driver drops the registry and rebuilds one from the log.
    """

    records: tuple[LogRecord, ...] = ()
    answers: tuple[TransactionAnswer, ...] = ()
    markers: tuple[Markers, ...] = ()


NOTHING: Final = TransactionEffects()


class TransactionState(IntEnum):
    """The numbers are those in the log. Kafka's Dead (6) and PrepareEpochFence (7) are intermediate
    steps that do not exist here; Kafka never writes them either."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5

    @property
    def title(self) -> str:
        """The name in DescribeTransactions and ListTransactions."""
        return self.name.title().replace("_", "")

    @property
    def is_ending(self) -> bool:
        """Decided; markers are being written."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)


_E, _O = TransactionState.EMPTY, TransactionState.ONGOING
_PC, _PA = TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT
_CC, _CA = TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT

ALLOWED_BEFORE: Final = {
    _E: frozenset((_E, _CC, _CA)),
    _O: frozenset((_E, _O, _CC, _CA)),
    _PC: frozenset((_O,)),
    _PA: frozenset((_E, _O, _CC, _CA)),
    _CC: frozenset((_PC,)),
    _CA: frozenset((_PA,)),
}
"""The states from which each state may be entered (Kafka's TransactionState). PREPARE_ABORT without a
transaction is KIP-890: a client that is unsure whether anything arrived aborts to be safe."""


def check_move(before: TransactionState, after: TransactionState) -> None:
    if before not in ALLOWED_BEFORE[after]:
        raise InvariantBroken(f"a transaction cannot change from {before.title} to {after.title}")


_DAY_MS = 24 * 60 * 60 * 1000


@dataclass(frozen=True, slots=True)
class TransactionConfig:
    """Settings. Each description starts with Kafka's name of the setting, if it has one."""

    timeout_ms_max: int = 900_000
    """`transaction.max.timeout.ms`: a longer one would block readers for too long."""

    id_expiration_ms: int = 7 * _DAY_MS
    """`transactional.id.expiration.ms`: an id that is unused for this long is removed."""

    ids_max: int = 100_000
    """The most transactional ids of one coordinator partition; another gets POLICY_VIOLATION."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if getattr(self, name) < 1:
                raise InvalidConfig(f"{name} is {getattr(self, name)}; it must be at least 1")
