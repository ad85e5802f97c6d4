"""Idempotent producers of one partition: who they are and what they wrote last.

The state is a fold of batch headers and nothing else, so it is rebuilt from the log: a new leader
or a restarted broker knows exactly what a producer may retry. Rules: KIP-98, KIP-360 and Kafka's
ProducerStateManager / ProducerAppendInfo.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from kafkaesque.model.errors import InvalidProducerEpoch, OutOfOrderSequence
from kafkaesque.model.ids import NO_PRODUCER, Offset, ProducerEpoch, ProducerId, TimestampMs
from kafkaesque.records.batch import SEQUENCE_MAX, BatchHeader

BATCHES_REMEMBERED = 5
"""A producer may have this many batches in flight, so it may retry any of the last five
(max.in.flight.requests.per.connection <= 5 is what idempotent clients enforce)."""


@dataclass(frozen=True, slots=True)
class WrittenBatch:
    first_sequence: int
    last_sequence: int
    base_offset: Offset
    timestamp: TimestampMs


@dataclass(slots=True)
class Producer:
    """`batches` holds the newest batches of the current epoch, oldest first."""

    epoch: ProducerEpoch
    last_seen_ms: TimestampMs
    batches: deque[WrittenBatch] = field(default_factory=lambda: deque(maxlen=BATCHES_REMEMBERED))

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else -1


class _Snapshot(msgspec.Struct, array_like=True):
    """(producer id, epoch, last seen, [(first sequence, last sequence, base offset, timestamp)])."""

    producers: list[tuple[int, int, int, list[tuple[int, int, int, int]]]]


class ProducerTable:
    """All idempotent producers that one partition remembers.

    `saved_offset` is the offset of the newest snapshot: a restart folds the headers behind it.
    """

    __slots__ = ("_producers", "saved_offset")

    def __init__(self, saved_offset: Offset) -> None:
        self._producers: dict[ProducerId, Producer] = {}
        self.saved_offset = saved_offset

    def __len__(self) -> int:
        return len(self._producers)

    def items(self) -> Iterator[tuple[ProducerId, Producer]]:
        yield from self._producers.items()

    def judge(self, header: BatchHeader) -> WrittenBatch | None:
        """None if the batch may be appended; the earlier batch if it is a retry of one.

        Raises InvalidProducerEpoch for a fenced producer and OutOfOrderSequence for a gap.
        """
        if header.producer_id == NO_PRODUCER:
            return None
        known = self._producers.get(header.producer_id)
        if known is None:
            # The producer's history may have expired with its segments: any sequence is taken.
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
        if known.batches and header.base_sequence != expected:
            raise OutOfOrderSequence(
                f"Producer {header.producer_id} sent sequence {header.base_sequence} to a partition "
                f"that expects {expected}"
            )
        return None

    def apply(self, header: BatchHeader) -> None:
        """Remember an appended batch."""
        if header.producer_id == NO_PRODUCER:
            return
        known = self._producers.get(header.producer_id)
        if known is None or known.epoch != header.producer_epoch:
            known = Producer(header.producer_epoch, header.max_timestamp)
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

    def expire(self, now_ms: TimestampMs, expiration_ms: int) -> None:
        """Forget producers that were silent for longer than `expiration_ms`."""
        limit = now_ms - expiration_ms
        expired = [pid for pid, known in self._producers.items() if known.last_seen_ms < limit]
        for producer_id in expired:
            del self._producers[producer_id]

    def snapshot(self) -> bytes:
        """The table as bytes, so that a restart reads only the headers behind it."""
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
        return msgspec.msgpack.encode(_Snapshot(rows))

    @classmethod
    def restore(cls, data: bytes, saved_offset: Offset) -> ProducerTable:
        """The table of `snapshot`; msgspec.DecodeError if the bytes are not one."""
        table = cls(saved_offset)
        for producer_id, epoch, last_seen_ms, batches in msgspec.msgpack.decode(
            data, type=_Snapshot
        ).producers:
            producer = Producer(ProducerEpoch(epoch), TimestampMs(last_seen_ms))
            for first, last, base_offset, timestamp in batches:
                producer.batches.append(
                    WrittenBatch(first, last, Offset(base_offset), TimestampMs(timestamp))
                )
            table._producers[ProducerId(producer_id)] = producer
        return table
