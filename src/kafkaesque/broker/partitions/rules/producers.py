"""The idempotent producers of one partition and their last batches.

The state is a fold of batch headers only, so it can be rebuilt from the log: a new leader or a
restarted broker has the same state. Based on KIP-98, KIP-360 and Kafka's ProducerStateManager and
ProducerAppendInfo. Transactions are in `open_transactions`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from kafkaesque.broker.partitions.rules.markers import Marker
from kafkaesque.broker.partitions.rules.open_transactions import (
    OpenTransactions,
    OpenTransactionsSnapshot,
    TransactionCoordinatorFenced,
    VerificationGuard,
)
from kafkaesque.model.errors import (
    InvalidProducerEpoch,
    InvalidTransactionState,
    OutOfOrderSequence,
)
from kafkaesque.model.ids import NO_PRODUCER, Offset, ProducerEpoch, ProducerId, TimestampMs
from kafkaesque.records.batch import SEQUENCE_MAX, BatchHeader
from kafkaesque.records.layout import TRANSACTIONAL_BIT

NO_COORDINATOR = -1

BATCHES_REMEMBERED = 5
"""An idempotent client has at most this many batches in flight
(max.in.flight.requests.per.connection <= 5), so it may retry any of the last five."""

PIPELINE_SECONDS = 30.0
"""For this long after a batch was rejected, the batches that its producer had sent after it may
still arrive."""


class WrittenBatch(NamedTuple):
    first_sequence: int
    last_sequence: int
    base_offset: Offset
    timestamp: TimestampMs

    @property
    def end_offset(self) -> Offset:
        count = ((self.last_sequence - self.first_sequence) & SEQUENCE_MAX) + 1
        return Offset(self.base_offset + count)


@dataclass(slots=True)
class Producer:
    """One producer. `batches` holds the newest batches of the current epoch, oldest first."""

    epoch: ProducerEpoch
    last_seen_ms: TimestampMs
    coordinator_epoch: int = NO_COORDINATOR
    """The epoch of the coordinator that ended its last transaction. Older coordinators are
    rejected."""
    batches: deque[WrittenBatch] = field(default_factory=lambda: deque(maxlen=BATCHES_REMEMBERED))

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else -1


class _Idle(NamedTuple):
    """A producer's visible state, and since when, by our own clock, it has not changed."""

    state: tuple[int, int, int]
    since_ms: int


class _ProducersSnapshot(msgspec.Struct, array_like=True):
    """(producer id, epoch, last seen, [(first sequence, last sequence, base offset,
    timestamp)])."""

    producers: list[tuple[int, int, int, list[tuple[int, int, int, int]]]]
    coordinator_epochs: dict[int, int] = {}
    transactions: OpenTransactionsSnapshot = msgspec.field(default_factory=OpenTransactionsSnapshot)
    is_of_start: bool = False
    """It holds only what the log lacks if the log begins at this offset, and nothing else."""


class ProducerTable:
    """All idempotent producers that one partition remembers.

    `saved_offset` is the offset of the newest snapshot. A restart folds the headers after it.
    """

    __slots__ = ("_idle", "_producers", "retriable_error_s", "saved_offset", "transactions")

    def __init__(self, saved_offset: Offset) -> None:
        self._producers: dict[ProducerId, Producer] = {}
        self._idle: dict[ProducerId, _Idle] = {}
        self.saved_offset = saved_offset
        self.retriable_error_s = 0.0
        """When a batch that its producer will retry was last rejected; 0 if never. Monotonic."""
        self.transactions = OpenTransactions()

    def __len__(self) -> int:
        return len(self._producers)

    def items(self) -> Iterator[tuple[ProducerId, Producer]]:
        yield from self._producers.items()

    def get(self, producer_id: ProducerId) -> Producer | None:
        return self._producers.get(producer_id)

    def last_offset(self, producer_id: ProducerId) -> Offset | None:
        """Returns the base offset of a producer's last batch; None if there is none."""
        known = self._producers.get(producer_id)
        return None if known is None or not known.batches else known.batches[-1].base_offset

    def judge(
        self, header: BatchHeader, guard: VerificationGuard | None = None
    ) -> WrittenBatch | None:
        """Returns None if the batch may be appended, or the earlier batch if it is a retry of one.

        Raises InvalidProducerEpoch for a fenced producer, OutOfOrderSequence for a gap, and
        InvalidTransactionState for a batch that would begin a transaction without holding its
        `guard`.
        """
        if header.producer_id == NO_PRODUCER:
            return None
        earlier = self._judge_sequence(header)
        if earlier is None and (header.attributes & TRANSACTIONAL_BIT or len(self.transactions)):
            self._judge_transaction(header, guard)
        return earlier

    def is_repeated(self, header: BatchHeader) -> bool:
        """Returns whether the batch precedes the next expected one: it is a retry, or too late."""
        known = self._producers.get(header.producer_id)
        if known is None or known.epoch != header.producer_epoch or not known.batches:
            return False
        ahead = (header.base_sequence - known.last_sequence - 1) & SEQUENCE_MAX
        return ahead > SEQUENCE_MAX // 2

    def overtakes(self, header: BatchHeader, now_s: float) -> bool:
        """Returns whether an unknown producer starts with a later batch while its first was
        rejected."""
        is_late = header.base_sequence != 0 and header.producer_id not in self._producers
        return is_late and self.had_retriable_error(now_s)

    def had_retriable_error(self, now_s: float) -> bool:
        """Returns whether a batch was rejected so recently that batches sent after it may still
        arrive.

        Those are not a sequence gap. On OUT_OF_ORDER_SEQUENCE, librdkafka takes a new epoch and
        sends everything again, including batches that were appended but not acknowledged. On a
        retriable error, it goes back to the batch that failed first. (Found by `fault run
        rolling-restart`, where a leader that hands over rejects batches for a moment.)
        """
        return self.retriable_error_s > 0 and now_s - self.retriable_error_s < PIPELINE_SECONDS

    def needs_guard(self, producer_id: ProducerId, epoch: ProducerEpoch) -> bool:
        """Returns whether a transactional batch would be the first of a transaction in this
        partition."""
        known = self._producers.get(producer_id)
        return (
            known is None
            or known.epoch != epoch
            or self.transactions.first_offset(producer_id) is None
        )

    def check_writer(
        self, producer_id: ProducerId, epoch: ProducerEpoch, guard: VerificationGuard | None
    ) -> None:
        """Checks whether a coordinator may write here in a producer's transaction. Raises as
        `judge` does."""
        known = self._producers.get(producer_id)
        if known is not None and epoch < known.epoch:
            raise InvalidProducerEpoch(
                f"Epoch {epoch} of producer {producer_id} is smaller than the last seen epoch "
                f"{known.epoch}"
            )
        if self.needs_guard(producer_id, epoch):
            self._check_guard(producer_id, guard)

    def _check_guard(
        self, producer_id: ProducerId, guard: VerificationGuard | None
    ) -> VerificationGuard:
        if guard is None or not self.transactions.holds(producer_id, guard):
            raise InvalidTransactionState("Record was not part of an ongoing transaction")
        return guard

    def _judge_transaction(self, header: BatchHeader, guard: VerificationGuard | None) -> None:
        producer_id = header.producer_id
        if not header.is_transactional:
            if self.transactions.first_offset(producer_id) is not None:
                raise InvalidTransactionState(
                    f"Producer {producer_id} has a transaction open and wrote outside of it"
                )
            return
        if not self.needs_guard(producer_id, header.producer_epoch):
            return
        held = self._check_guard(producer_id, guard)
        if header.base_sequence > held.lowest_sequence:
            raise OutOfOrderSequence(
                f"Producer {producer_id} sent sequence {header.base_sequence} to a partition that "
                f"still waits for {held.lowest_sequence}"
            )

    def judge_marker(
        self,
        producer_id: ProducerId,
        epoch: ProducerEpoch,
        coordinator_epoch: int,
        *,
        is_epoch_new: bool,
    ) -> bool:
        """Returns whether a transaction marker must be appended; False if it was appended already.

        `is_epoch_new`: no record of the marker's transaction has the marker's epoch (KIP-890), so
        an open transaction of that epoch is the next one. Raises InvalidProducerEpoch for a marker
        that is too late, TransactionCoordinatorFenced for one from a replaced coordinator.
        """
        known = self._producers.get(producer_id)
        if known is None:
            return True
        if coordinator_epoch < known.coordinator_epoch:
            raise TransactionCoordinatorFenced(
                f"Coordinator epoch {coordinator_epoch} is older than {known.coordinator_epoch}"
            )
        is_same = is_epoch_new and epoch == known.epoch
        if is_same and self.transactions.first_offset(producer_id) is None:
            return False
        if is_same or epoch < known.epoch:
            raise InvalidProducerEpoch(
                f"A marker with epoch {epoch} of producer {producer_id} is too late: the partition "
                f"is at epoch {known.epoch}"
            )
        return True

    def _judge_sequence(self, header: BatchHeader) -> WrittenBatch | None:
        known = self._producers.get(header.producer_id)
        if known is None:
            # The producer's state may have expired with its segments: any sequence is accepted.
            return None
        if header.producer_epoch < known.epoch:
            raise InvalidProducerEpoch(
                f"Epoch {header.producer_epoch} of producer {header.producer_id} is smaller than the "
                f"last seen epoch {known.epoch}"
            )
        if header.producer_epoch > known.epoch:
            if header.base_sequence != 0:
                raise OutOfOrderSequence(
                    f"Producer {header.producer_id} starts its new epoch {header.producer_epoch} with "
                    f"sequence {header.base_sequence}, not 0"
                )
            return None
        for batch in known.batches:
            if (
                batch.first_sequence == header.base_sequence
                and batch.last_sequence == header.last_sequence
            ):
                return batch
        expected = (known.last_sequence + 1) & SEQUENCE_MAX
        if header.base_sequence != expected:
            raise OutOfOrderSequence(
                f"Producer {header.producer_id} sent sequence {header.base_sequence} to a partition "
                f"that expects {expected}"
            )
        return None

    def apply(self, header: BatchHeader, marker: Marker | None = None) -> None:
        """Records an appended batch. `marker` is the content of a control batch."""
        if header.producer_id == NO_PRODUCER:
            return
        known = self._producers.get(header.producer_id)
        if known is None or known.epoch != header.producer_epoch:
            coordinator_epoch = NO_COORDINATOR if known is None else known.coordinator_epoch
            known = Producer(header.producer_epoch, header.max_timestamp, coordinator_epoch)
            self._producers[header.producer_id] = known
        known.last_seen_ms = header.max_timestamp
        if not header.is_control:
            known.batches.append(
                WrittenBatch(
                    header.base_sequence,
                    header.last_sequence,
                    header.base_offset,
                    header.max_timestamp,
                )
            )
            if header.attributes & TRANSACTIONAL_BIT:
                self.transactions.wrote(header.producer_id, header.base_offset)
        elif marker is not None:
            known.coordinator_epoch = marker.coordinator_epoch
            self.transactions.ended(
                header.producer_id, header.base_offset, is_commit=marker.is_commit
            )

    def expire(self, monotonic_ms: int, expiration_ms: int) -> None:
        """Forgets producers that were idle for longer than `expiration_ms` and have no open
        transaction.

        Called periodically. Idle time is measured on our own monotonic clock: record timestamps
        come from the client and may be a year old, and the wall clock may jump.
        """
        idle: dict[ProducerId, _Idle] = {}
        for producer_id, known in tuple(self._producers.items()):
            if self.transactions.first_offset(producer_id) is not None:
                continue
            state = (known.epoch, known.last_sequence, known.last_seen_ms)
            before = self._idle.get(producer_id)
            if before is None or before.state != state:
                before = _Idle(state, monotonic_ms)
            if monotonic_ms - before.since_ms > expiration_ms:
                del self._producers[producer_id]
            else:
                idle[producer_id] = before
        self._idle = idle

    def before(self, offset: Offset) -> ProducerTable:
        """Returns the state from records before `offset`, as far as it matters once they are
        deleted. Later records are folded again. (Which transactions were aborted no longer
        matters.)"""
        table = ProducerTable(offset)
        for producer_id, known in self._producers.items():
            earlier = [batch for batch in known.batches if batch.end_offset <= offset]
            if earlier or not known.batches:
                kept = Producer(known.epoch, known.last_seen_ms, known.coordinator_epoch)
                kept.batches.extend(earlier)
                table._producers[producer_id] = kept
        table.transactions = self.transactions.before(offset)
        return table

    def snapshot(self, *, is_of_start: bool = False) -> bytes:
        """Encodes the table, so that a restart reads only the headers after it. `is_of_start`: the
        table was made by `before` and is useless for a log that begins earlier."""
        rows = [
            (
                int(producer_id),
                int(known.epoch),
                int(known.last_seen_ms),
                [
                    (b.first_sequence, b.last_sequence, int(b.base_offset), int(b.timestamp))
                    for b in known.batches
                ],
            )
            for producer_id, known in self._producers.items()
        ]
        coordinator_epochs = {
            int(producer_id): known.coordinator_epoch
            for producer_id, known in self._producers.items()
            if known.coordinator_epoch != NO_COORDINATOR
        }
        return msgspec.msgpack.encode(
            _ProducersSnapshot(rows, coordinator_epochs, self.transactions.snapshot(), is_of_start)
        )

    @classmethod
    def restore(
        cls, data: bytes, saved_offset: Offset, start_offset: Offset
    ) -> ProducerTable | None:
        """Decodes a `snapshot`; None if it is useless for a log that starts at `start_offset`.
        Raises msgspec.DecodeError if the bytes are invalid."""
        table = cls(saved_offset)
        saved = msgspec.msgpack.decode(data, type=_ProducersSnapshot)
        if saved.is_of_start and start_offset < saved_offset:
            return None
        table.transactions = OpenTransactions.restore(saved.transactions)
        for producer_id, epoch, last_seen_ms, batches in saved.producers:
            coordinator_epoch = saved.coordinator_epochs.get(producer_id, NO_COORDINATOR)
            producer = Producer(ProducerEpoch(epoch), TimestampMs(last_seen_ms), coordinator_epoch)
            for first, last, base_offset, timestamp in batches:
                producer.batches.append(
                    WrittenBatch(first, last, Offset(base_offset), TimestampMs(timestamp))
                )
            table._producers[ProducerId(producer_id)] = producer
        return table
