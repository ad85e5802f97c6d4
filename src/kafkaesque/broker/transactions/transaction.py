"""The state of one transactional id, and its transitions.

`registry` decides whether a request is valid; this module carries out its transition.
"""

from __future__ import annotations

from collections.abc import Iterable

from kafkaesque.broker.transactions.connection_fence import ConnectionFence
from kafkaesque.broker.transactions.log_format import TransactionValue, encode
from kafkaesque.broker.transactions.types import (
    EPOCH_EXHAUSTED,
    EPOCH_MAX,
    NEW_FLOW,
    NO_PRODUCER_EPOCH,
    OLD_FLOW,
    DescribedTransaction,
    Markers,
    TransactionState,
    check_move,
)
from kafkaesque.model.clock import Moment
from kafkaesque.model.errors import check
from kafkaesque.model.ids import (
    NO_PRODUCER,
    NO_TIMESTAMP,
    ProducerEpoch,
    ProducerId,
    ProducerIdentity,
    TopicPartition,
)
from kafkaesque.records.log_fields import LogRecord


class Transaction:
    """Invariants: the epoch of a producer id never decreases; there are partitions while Ongoing and
    while ending; `unmarked` is a subset of them, empty unless ending."""

    __slots__ = (
        "connections",
        "flow",
        "last_epoch",
        "next_producer_id",
        "number",
        "partitions",
        "previous_producer_id",
        "producer",
        "started_ms",
        "state",
        "timeout_ms",
        "transactional_id",
        "unmarked",
        "updated",
    )

    def __init__(self, transactional_id: str, producer_id: ProducerId) -> None:
        self.transactional_id = transactional_id
        self.producer = ProducerIdentity(producer_id, NO_PRODUCER_EPOCH)
        self.last_epoch = NO_PRODUCER_EPOCH
        """The epoch before the last bump that the producer itself requested: identifies its retry.
        Not in the log: after a failover such a retry is fenced, as in Kafka."""
        self.previous_producer_id = NO_PRODUCER
        self.next_producer_id = NO_PRODUCER
        """The client's next producer id after its current one ran out of epochs."""
        self.timeout_ms = 0
        self.state = TransactionState.EMPTY
        self.partitions: set[TopicPartition] = set()
        self.unmarked: set[TopicPartition] = set()
        self.started_ms = NO_TIMESTAMP
        self.updated = Moment(0.0, NO_TIMESTAMP)
        """Time of the last transition; for a restored one, `monotonic` is set once all are loaded."""
        self.flow = OLD_FLOW
        self.connections = ConnectionFence()
        self.number = 0
        """Counts the transactions begun here, so that a timer identifies its own."""

    @classmethod
    def from_record(cls, transactional_id: str, value: TransactionValue) -> Transaction:
        restored = cls(transactional_id, value.producer_id)
        restored.producer = ProducerIdentity(value.producer_id, value.epoch)
        restored.previous_producer_id = value.previous_producer_id
        restored.next_producer_id = value.next_producer_id
        restored.timeout_ms = value.timeout_ms
        restored.state = value.state
        restored.partitions = set(value.partitions)
        restored.started_ms = value.started_ms
        restored.updated = Moment(0.0, value.updated_ms)
        restored.flow = value.flow
        if value.state.is_ending:
            restored.unmarked = set(value.partitions)
        return restored

    @property
    def is_epoch_exhausted(self) -> bool:
        return self.producer.epoch >= EPOCH_EXHAUSTED

    def record(self) -> LogRecord:
        """The record from which this state is restored."""
        value = TransactionValue(
            producer_id=self.producer.producer_id,
            epoch=self.producer.epoch,
            timeout_ms=self.timeout_ms,
            state=self.state,
            partitions=frozenset(self.partitions),
            updated_ms=self.updated.wall_ms,
            started_ms=self.started_ms,
            previous_producer_id=self.previous_producer_id,
            next_producer_id=self.next_producer_id,
            flow=self.flow,
        )
        return encode(self.transactional_id, value)

    def markers(self) -> Markers:
        """The markers that are not written yet."""
        return Markers(
            self.transactional_id,
            self.producer,
            self.state is TransactionState.PREPARE_COMMIT,
            self.flow,
            tuple(sorted(self.unmarked)),
        )

    def describe(self) -> DescribedTransaction:
        return DescribedTransaction(
            self.transactional_id,
            state=self.state.title,
            timeout_ms=self.timeout_ms,
            started_ms=self.started_ms,
            producer=self.producer,
            partitions=tuple(sorted(self.partitions)),
        )

    # -- transitions ------------------------------------------------------------------------------

    def adopt(
        self,
        producer: ProducerIdentity,
        last_epoch: ProducerEpoch,
        timeout_ms: int,
        now: Moment,
    ) -> None:
        """A producer starts to use the id, or its epoch is bumped."""
        self._move(TransactionState.EMPTY, now)
        if producer.producer_id != self.producer.producer_id:
            self.previous_producer_id = self.producer.producer_id
        else:
            check(producer.epoch >= self.producer.epoch, "an epoch never decreases")
        if producer != self.producer:
            self.connections.begin()
        self.producer = producer
        self.last_epoch = last_epoch
        self.timeout_ms = timeout_ms
        self.started_ms = NO_TIMESTAMP
        self.partitions.clear()

    def add(self, partitions: Iterable[TopicPartition], now: Moment) -> None:
        if self.state is not TransactionState.ONGOING:
            self.number += 1
            self.started_ms = now.wall_ms
        self._move(TransactionState.ONGOING, now)
        self.partitions.update(partitions)

    def end(self, is_commit: bool, flow: int, next_producer_id: ProducerId, now: Moment) -> None:
        """Decides, as the client requested. In the new flow the marker bumps the epoch, so that a
        delayed request of this transaction does not fit the next one."""
        is_begun = self.state is TransactionState.ONGOING
        self._move(
            TransactionState.PREPARE_COMMIT if is_commit else TransactionState.PREPARE_ABORT, now
        )
        self.flow = flow
        if flow >= NEW_FLOW:
            self._bump_epoch()
            self.last_epoch = ProducerEpoch(self.producer.epoch - 1)
        self.next_producer_id = next_producer_id
        if not is_begun:
            self.started_ms = now.wall_ms
        self.unmarked = set(self.partitions)

    def fence(self, now: Moment) -> None:
        """Aborts without the producer, which a new epoch fences."""
        self._move(TransactionState.PREPARE_ABORT, now)
        self._bump_epoch()
        self.last_epoch = NO_PRODUCER_EPOCH
        self.flow = NEW_FLOW
        self.unmarked = set(self.partitions)

    def complete(self, now: Moment) -> None:
        """Every partition has the marker."""
        check(
            not self.unmarked,
            "a transaction is complete only when all its partitions have the marker",
        )
        is_commit = self.state is TransactionState.PREPARE_COMMIT
        self._move(
            TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT,
            now,
        )
        self.partitions.clear()
        if self.next_producer_id != NO_PRODUCER:
            self.previous_producer_id = self.producer.producer_id
            self.producer = ProducerIdentity(self.next_producer_id, ProducerEpoch(0))
            self.next_producer_id = NO_PRODUCER

    @property
    def successor(self) -> ProducerIdentity:
        """The client's identity after a transaction that ended in the new flow."""
        if self.next_producer_id != NO_PRODUCER:
            return ProducerIdentity(self.next_producer_id, ProducerEpoch(0))
        return self.producer

    def _bump_epoch(self) -> None:
        check(self.producer.epoch < EPOCH_MAX, "the last epoch is reserved for fencing")
        self.producer = self.producer._replace(epoch=ProducerEpoch(self.producer.epoch + 1))

    def _move(self, state: TransactionState, now: Moment) -> None:
        """The only place where a transaction changes its state."""
        check_move(self.state, state)
        self.state = state
        self.updated = now
