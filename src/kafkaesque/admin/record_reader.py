"""Reads records of fixed ranges of partitions, or as a member of a consumer group.

Both readers are generators of batches. Resuming the generator acknowledges the last batch; only then
are a group's offsets stored for the next commit.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from kafkaesque.admin.connection import ClusterConnection, kafka_error
from kafkaesque.admin.errors import BrokerUnavailable
from kafkaesque.admin.offsets import fetch_bounds, partitions_of
from kafkaesque.admin.rules.offset_reset import Bounds, OffsetSpec, Partition, resolve

BATCH_RECORDS_MAX = 1000
POLL_TIMEOUT_S = 0.2
"""Upper bound on the delay of Ctrl-C."""
BEGINNING = OffsetSpec("beginning")


@dataclass(frozen=True)
class RecordSelection:
    """Which records of `topics` to read.

    `start` and `stop` default to the beginning and the current end. With `follow` there is no stop: the
    reader waits for new records. With `group` the group assigns the partitions and has committed
    offsets; `start` is then only for partitions without one, and must be the beginning or the end.
    """

    topics: tuple[str, ...]
    start: OffsetSpec | None = None
    stop: OffsetSpec | None = None
    follow: bool = False
    limit: int | None = None
    partitions: tuple[int, ...] = ()
    group: str | None = None
    committed_only: bool = True


@dataclass(frozen=True)
class RecordRange:
    """Offsets [start, stop) of one partition; without `stop` it has no end."""

    topic: str
    partition: int
    start: int
    stop: int | None


def select_ranges(connection: ClusterConnection, selection: RecordSelection) -> list[RecordRange]:
    """The ranges of a selection without a group. They are fixed before the first record is read."""
    partitions = partitions_of(connection, selection.topics, selection.partitions)
    start = selection.start or BEGINNING
    committed_only = selection.committed_only
    starts = fetch_bounds(connection, partitions, start, committed_only=committed_only)
    stop = OffsetSpec("end") if selection.stop is None else selection.stop
    stops = starts
    if stop.kind == "time":
        stops = fetch_bounds(connection, partitions, stop, committed_only=committed_only)
    return make_ranges(starts, start, stops, None if selection.follow else stop)


def make_ranges(
    starts: Mapping[Partition, Bounds],
    start: OffsetSpec,
    stops: Mapping[Partition, Bounds],
    stop: OffsetSpec | None,
) -> list[RecordRange]:
    """The range of each partition. Skips empty ranges; a range without a stop is never empty."""
    ranges = []
    for (topic, index), bounds in sorted(starts.items()):
        first = resolve(start, bounds)
        last = None if stop is None else resolve(stop, stops[topic, index])
        if last is None or first < last:
            ranges.append(RecordRange(topic, index, first, last))
    return ranges


class _Remaining:
    """The partitions that have not reached their stop, and how many records may still be read."""

    def __init__(self, limit: int | None) -> None:
        self._stops: dict[Partition, int] = {}
        self._left = limit

    def expect(self, partition: Partition, stop: int) -> None:
        self._stops[partition] = stop

    def forget(self, partition: Partition) -> None:
        self._stops.pop(partition, None)

    @property
    def is_exhausted(self) -> bool:
        return self._left == 0

    @property
    def open_partitions(self) -> int:
        return len(self._stops)

    def next_count(self) -> int:
        return BATCH_RECORDS_MAX if self._left is None else min(BATCH_RECORDS_MAX, self._left)

    def take(self, partition: Partition, offset: int, *, bounded: bool) -> bool:
        """Whether to yield the record at `offset`; forgets the partition after its last record."""
        stop = self._stops.get(partition)
        if self._left == 0 or (bounded and (stop is None or offset >= stop)):
            self.forget(partition)
            return False
        if self._left is not None:
            self._left -= 1
        if stop is not None and offset + 1 >= stop:
            self.forget(partition)
        return True

    def reached(self, partition: Partition, offset: int) -> None:
        """No more records exist before `offset`: the rest may be transaction markers."""
        if offset >= self._stops.get(partition, offset + 1):
            self.forget(partition)


def _consumer(
    connection: ClusterConnection, selection: RecordSelection, group: str, start: str
) -> Consumer:
    level = "read_committed" if selection.committed_only else "read_uncommitted"
    return connection.consumer(
        group_id=group,
        enable_partition_eof=True,
        enable_auto_commit=selection.group is not None,
        enable_auto_offset_store=False,
        auto_offset_reset=start,
        isolation_level=level,
        fetch_wait_max_ms=100,
        # The default pauses fetching for a second whenever 100,000 records are queued, which would
        # limit the throughput to that.
        fetch_queue_backoff_ms=10,
    )


def read_ranges(
    connection: ClusterConnection, ranges: list[RecordRange], selection: RecordSelection
) -> Iterator[list[Message]]:
    """Records of `ranges`, without a group and without commits."""
    if not ranges:
        return
    remaining = _Remaining(selection.limit)
    for item in ranges:
        if item.stop is not None:
            remaining.expect((item.topic, item.partition), item.stop)
    consumer = _consumer(connection, selection, "kafkaesque-cli", "error")
    try:
        consumer.assign([TopicPartition(r.topic, r.partition, r.start) for r in ranges])
        deadline = _FirstAnswerDeadline(connection)
        while not remaining.is_exhausted and (selection.follow or remaining.open_partitions):
            batch = _next_batch(connection, consumer, remaining, bounded=not selection.follow)
            deadline.check(batch is not None)
            if batch:
                yield batch
    finally:
        consumer.close()


def read_group(
    connection: ClusterConnection, selection: RecordSelection
) -> Iterator[list[Message]]:
    """Records of the topics as a member of the group; commits acknowledged batches."""
    start = "latest" if (selection.start or BEGINNING).kind == "end" else "earliest"
    remaining = _Remaining(selection.limit)
    assigned = False

    def on_assign(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        nonlocal assigned
        assigned = True
        if not selection.follow:
            _expect_ends(connection, consumer, partitions, remaining, start, selection)

    def on_revoke(_consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for item in partitions:
            remaining.forget((item.topic, item.partition))

    consumer = _consumer(connection, selection, selection.group or "", start)
    try:
        consumer.subscribe(list(selection.topics), on_assign=on_assign, on_revoke=on_revoke)
        deadline = _FirstAnswerDeadline(connection)
        while not remaining.is_exhausted:
            batch = _next_batch(connection, consumer, remaining, bounded=not selection.follow)
            deadline.check(batch is not None or assigned)
            if batch:
                yield batch
                _store(consumer, batch)
            if assigned and not selection.follow and not remaining.open_partitions:
                break
    finally:
        consumer.close()


def _expect_ends(
    connection: ClusterConnection,
    consumer: Consumer,
    partitions: list[TopicPartition],
    remaining: _Remaining,
    start: str,
    selection: RecordSelection,
) -> None:
    """Record the current end of each assigned partition, unless the group has already reached it."""
    keys = [(item.topic, item.partition) for item in partitions]
    bounds = fetch_bounds(connection, keys, committed_only=selection.committed_only)
    for item in consumer.committed(partitions, timeout=connection.timeout_s):
        here = bounds[item.topic, item.partition]
        fallback = here.earliest if start == "earliest" else here.end
        first = item.offset if item.offset >= 0 else fallback
        if first < here.end:
            remaining.expect((item.topic, item.partition), here.end)


def _next_batch(
    connection: ClusterConnection, consumer: Consumer, remaining: _Remaining, *, bounded: bool
) -> list[Message] | None:
    """The next selected records; None if the poll returned nothing at all."""
    try:
        # `consume` alone would wait for a full batch. `poll` returns with the first record; the
        # records already queued after it are then consumed without waiting.
        first = consumer.poll(POLL_TIMEOUT_S)
        if first is None:
            return None
        messages = [first, *consumer.consume(remaining.next_count(), 0)]
    except KafkaException as exception:
        raise connection.admin_error(kafka_error(exception), "read") from None
    batch = []
    for message in messages:
        partition = (message.topic() or "", message.partition() or 0)
        error = message.error()
        if error is None:
            if remaining.take(partition, message.offset() or 0, bounded=bounded):
                batch.append(message)
        elif error.code() == KafkaError._PARTITION_EOF:
            remaining.reached(partition, message.offset() or 0)
        elif not error.retriable() and error.code() not in _TRANSIENT:
            raise connection.admin_error(error, f"read {partition[0]}-{partition[1]}")
    return batch


_TRANSIENT = frozenset({KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE})
"""librdkafka reconnects by itself; `_FirstAnswerDeadline` limits how long that may take."""


def _store(consumer: Consumer, batch: list[Message]) -> None:
    last: dict[Partition, int] = {}
    for message in batch:
        last[message.topic() or "", message.partition() or 0] = (message.offset() or 0) + 1
    try:
        consumer.store_offsets(
            offsets=[
                TopicPartition(topic, index, offset) for (topic, index), offset in last.items()
            ]
        )
    except KafkaException as exception:
        # The partition has moved to another member, which will print these records again.
        if kafka_error(exception).code() != KafkaError._STATE:
            raise


class _FirstAnswerDeadline:
    """Fails if the cluster has not answered at all within the timeout after the start."""

    def __init__(self, connection: ClusterConnection) -> None:
        self._connection = connection
        self._deadline: float | None = time.monotonic() + connection.timeout_s

    def check(self, answered: bool) -> None:
        if answered:
            self._deadline = None
        elif self._deadline is not None and time.monotonic() > self._deadline:
            raise BrokerUnavailable(
                f"no answer from {self._connection.bootstrap} for {self._connection.timeout_s:g} s",
                self._connection.diagnosis_hint,
            )
