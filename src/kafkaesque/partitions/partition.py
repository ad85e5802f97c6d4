"""One partition as its leader sees it: append, read, and who may see what.

Offsets: log_start <= high_watermark <= log_end, and none of them ever goes back. With
`flush=always` the high watermark is the synced end of the log, so a consumer never sees, and
acks=all never acknowledges, what a power cut could take back. With `flush=never` it is the end.

Everything here runs on the event loop's thread, except `sync`, which the flusher calls from its own.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from contextlib import suppress
from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple

import msgspec

from kafkaesque.model.clock import Clock
from kafkaesque.model.errors import (
    CorruptMessage,
    FencedLeaderEpoch,
    NotEnoughReplicas,
    OffsetOutOfRange,
    StorageFailed,
    UnknownLeaderEpoch,
    UnknownTopicOrPartition,
    check,
)
from kafkaesque.model.ids import (
    NO_EPOCH,
    NO_TIMESTAMP,
    LeaderEpoch,
    Offset,
    TimestampMs,
    TopicId,
    TopicPartition,
)
from kafkaesque.model.settings import TopicConfig
from kafkaesque.partitions import admission
from kafkaesque.partitions.flusher import Flusher
from kafkaesque.partitions.producers import ProducerTable
from kafkaesque.partitions.waiting import BytesAwaited
from kafkaesque.records.batch import BatchHeader, read_header, stamp, stamp_append_time
from kafkaesque.storage.chain import ReadResult
from kafkaesque.storage.config import LogConfig
from kafkaesque.storage.log import Log
from kafkaesque.storage.lookup import TimestampedOffset

logger = logging.getLogger(__name__)

SNAPSHOTS_KEPT = 2
"""The newest may lie beyond what a crash leaves of the log; the one before it then serves."""


class Appended(NamedTuple):
    """Where a batch stands in the log; `end_offset` is the offset after its last record."""

    base_offset: Offset
    end_offset: Offset
    append_time_ms: TimestampMs
    log_start_offset: Offset


@dataclass(frozen=True, slots=True)
class Environment:
    """What the partitions of a node share."""

    loop: asyncio.AbstractEventLoop
    clock: Clock
    flusher: Flusher
    flush_always: bool
    validation: str


def log_config(config: TopicConfig) -> LogConfig:
    """A topic's settings as its logs want them. A compacted topic discards nothing by age or size."""
    return LogConfig(
        segment_bytes=config.segment_bytes,
        segment_ms=config.segment_ms,
        segment_index_bytes=config.segment_index_bytes,
        index_interval_bytes=config.index_interval_bytes,
        retention_ms=config.retention_ms if config.deletes_old else -1,
        retention_bytes=config.retention_bytes if config.deletes_old else -1,
    )


def load_producers(log: Log) -> ProducerTable:
    """The producers of `log`, from its newest snapshot and the headers behind it. Blocking."""
    table = ProducerTable(log.log_start_offset)
    saved = log.latest_snapshot(log.log_end_offset)
    if saved is not None:
        # A snapshot is only a short cut: without it the headers tell the same.
        with suppress(msgspec.DecodeError):
            table = ProducerTable.restore(saved[1], saved[0])
    try:
        for header in log.headers_from(max(table.saved_offset, log.log_start_offset)):
            table.apply(header)
    except CorruptMessage as error:
        # One damaged header must not keep the rest of the node from starting. What lies behind it
        # is unknown here: a producer that wrote there is taken as new, and its retries as new too.
        logger.error("producers of %s are known only up to the damage: %s", log.directory, error)
    return table


class Partition:
    """See the module's text. `producers` is a fold of the log up to its end."""

    __slots__ = (
        "_appended",
        "_commits_awaited",
        "_env",
        "_inspections",
        "_log",
        "_unsynced_since_ms",
        "_watchers",
        "closed",
        "config",
        "high_watermark",
        "leader_epoch",
        "name",
        "producers",
        "replica_count",
        "topic_id",
    )

    def __init__(
        self,
        name: TopicPartition,
        topic_id: TopicId,
        log: Log,
        producers: ProducerTable,
        config: TopicConfig,
        leader_epoch: LeaderEpoch,
        env: Environment,
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.config = config
        self.leader_epoch = leader_epoch
        self.producers = producers
        self.replica_count = 1
        self.closed = False
        # What recovery kept is durable: the log was synced when it was opened.
        self.high_watermark = log.log_end_offset
        self._log = log
        self._env = env
        self._unsynced_since_ms: TimestampMs | None = None
        """When the oldest record was appended that no sync was asked for; with flush=never."""
        self._watchers: set[BytesAwaited] = set()
        self._appended: list[tuple[Offset, int]] = []
        """(end offset, size in bytes) of each batch above the high watermark, oldest first."""
        self._commits_awaited: list[tuple[Offset, asyncio.Future[None]]] = []
        self._inspections: list[asyncio.Task[Appended]] = []
        """Appends under inspection, in the order of their arrival."""

    @property
    def log_start_offset(self) -> Offset:
        return self._log.log_start_offset

    @property
    def log_end_offset(self) -> Offset:
        return self._log.log_end_offset

    @property
    def log(self) -> Log:
        """For maintenance and description; appends and reads go through the partition."""
        return self._log

    # -- append ---------------------------------------------------------------------------------

    def append(
        self, records: memoryview, *, all_replicas: bool
    ) -> Appended | asyncio.Task[Appended]:
        """Append the one batch in `records`, which is stamped in place.

        Usually done on return; a task if the records themselves must be looked at first. Batches
        join the log in the order of the calls.
        """
        if self.closed:
            raise UnknownTopicOrPartition(f"{self.name} is being deleted")
        if all_replicas and self.config.min_insync_replicas > self.replica_count:
            raise NotEnoughReplicas(
                f"{self.name} has {self.replica_count} replica(s) in sync, min.insync.replicas is "
                f"{self.config.min_insync_replicas}"
            )
        now_ms = self._env.clock.wall_ms()
        header = admission.admit(records, self.config, now_ms)
        if self._inspections or admission.wants_inspection(
            header, self.config, self._env.validation
        ):
            return self._inspect_and_append(records)
        return self._append_admitted(records, header, now_ms)

    def _inspect_and_append(self, records: memoryview) -> asyncio.Task[Appended]:
        """Look at the records in a worker thread, then append after all that was inspected before."""
        previous = self._inspections[-1] if self._inspections else None
        task = self._env.loop.create_task(self._append_inspected(records, previous))
        self._inspections.append(task)
        task.add_done_callback(self._inspections.remove)
        return task

    async def _append_inspected(
        self, records: memoryview, previous: asyncio.Task[Appended] | None
    ) -> Appended:
        stored = await self._env.loop.run_in_executor(None, admission.inspect, records, self.config)
        if previous is not None:
            await asyncio.wait([previous])
        if self.closed:
            raise UnknownTopicOrPartition(f"{self.name} is being deleted")
        return self._append_admitted(stored, read_header(stored), self._env.clock.wall_ms())

    def _append_admitted(
        self, records: memoryview, header: BatchHeader, now_ms: TimestampMs
    ) -> Appended:
        earlier = self.producers.judge(header)
        if earlier is not None:
            end_offset = Offset(earlier.base_offset + header.record_count)
            append_time = earlier.timestamp if self.config.uses_append_time else NO_TIMESTAMP
            return Appended(earlier.base_offset, end_offset, append_time, self.log_start_offset)
        return self._store(records, header, now_ms)

    def append_own(self, batch: bytearray) -> Appended:
        """Append a batch of the broker's own making (internal topics)."""
        if self.closed:
            raise UnknownTopicOrPartition(f"{self.name} is being deleted")
        view = memoryview(batch)
        return self._store(view, read_header(view), self._env.clock.wall_ms())

    def _store(self, records: memoryview, header: BatchHeader, now_ms: TimestampMs) -> Appended:
        append_time = NO_TIMESTAMP
        if self.config.uses_append_time:
            append_time = now_ms
            stamp_append_time(records, 0, append_time)
            header = read_header(records)
        base_offset = self._log.log_end_offset
        stamp(records, 0, base_offset, self.leader_epoch)
        header = header.stamped(base_offset, self.leader_epoch)
        self._log.append(records, header, now_ms)
        self.producers.apply(header)
        end_offset = header.next_offset
        if self._env.flush_always:
            self._appended.append((end_offset, header.size_bytes))
            self._env.flusher.ask(self)
        else:
            self._advance(end_offset, header.size_bytes)
            if self._unsynced_since_ms is None:
                self._unsynced_since_ms = now_ms
            if end_offset - self._log.synced_offset >= self.config.flush_messages:
                self._env.flusher.ask(self)
        return Appended(base_offset, end_offset, append_time, self._log.log_start_offset)

    def commit(self, appended: Appended, *, all_replicas: bool) -> asyncio.Future[None] | None:
        """What an acknowledgement of `appended` must wait for; None if it is due now.

        With one replica acks=1 waits for the commit too: clients count on reading back what a lone
        broker acknowledged, as they can with Apache Kafka.
        """
        if self._env.flush_always:
            must_commit = all_replicas or self.replica_count == 1
            waits = must_commit and appended.end_offset > self.high_watermark
        else:
            unsynced = appended.end_offset - self._log.synced_offset
            waits = unsynced >= self.config.flush_messages
        if not waits:
            return None
        future: asyncio.Future[None] = self._env.loop.create_future()
        self._commits_awaited.append((appended.end_offset, future))
        self._env.flusher.ask(self)
        return future

    # -- sync -----------------------------------------------------------------------------------

    def sync(self) -> Offset:
        """Blocking; called by the flusher from a thread of its own."""
        return self._log.sync()

    def synced(self, offset: Offset) -> None:
        """Everything below `offset` is durable."""
        count = bisect_right(self._appended, offset, key=itemgetter(0))
        if count:
            size_bytes = sum(size for _, size in self._appended[:count])
            del self._appended[:count]
            self._advance(offset, size_bytes)
        waiting = self._commits_awaited
        # Not sorted: a retried batch waits for an older offset than the one asked for before it.
        self._commits_awaited = [item for item in waiting if item[0] > offset]
        for end_offset, future in waiting:
            if end_offset <= offset and not future.done():
                future.set_result(None)

    def sync_failed(self, error: StorageFailed) -> None:
        """Nothing above the high watermark may be acknowledged any more."""
        waiting, self._commits_awaited = self._commits_awaited, []
        for _, future in waiting:
            if not future.done():
                future.set_exception(error)

    def flush_if_due(self) -> None:
        """`flush.ms`, and a closed segment: what no acknowledgement waits for is synced as well."""
        since_ms = self._unsynced_since_ms
        if since_ms is None or self.closed:
            return
        age_ms = self._env.clock.wall_ms() - since_ms
        if age_ms >= self.config.flush_ms or self._log.has_unsynced_closed_segment:
            self._unsynced_since_ms = None
            self._env.flusher.ask(self)

    def _advance(self, offset: Offset, size_bytes: int) -> None:
        if offset < self.high_watermark:
            check(False, f"high watermark of {self.name} would go back to {offset}")
        self.high_watermark = offset
        if self._watchers:
            for watcher in tuple(self._watchers):
                watcher.committed(size_bytes)

    # -- read -----------------------------------------------------------------------------------

    def check_epoch(self, believed: int) -> None:
        """KIP-320: refuse a client that believes in another leader epoch than ours."""
        if believed > self.leader_epoch:
            raise UnknownLeaderEpoch(f"{self.name} is at leader epoch {self.leader_epoch}")
        if NO_EPOCH < believed < self.leader_epoch:
            raise FencedLeaderEpoch(f"{self.name} is at leader epoch {self.leader_epoch}")

    def read(self, offset: Offset, max_bytes: int, *, at_least_one: bool) -> ReadResult:
        """Committed batches from the one that holds `offset` on."""
        if not self._log.log_start_offset <= offset <= self.high_watermark:
            raise OffsetOutOfRange(
                f"Offset {offset} of {self.name} is outside "
                f"[{self._log.log_start_offset}, {self.high_watermark}]"
            )
        return self._log.read(
            offset, max_bytes, limit_offset=self.high_watermark, at_least_one=at_least_one
        )

    def watch(self, watcher: BytesAwaited) -> None:
        self._watchers.add(watcher)

    def unwatch(self, watcher: BytesAwaited) -> None:
        self._watchers.discard(watcher)

    def find_by_timestamp(self, timestamp: TimestampMs) -> TimestampedOffset | None:
        """The first committed record that is not older than `timestamp`."""
        return self._committed(self._log.find_by_timestamp(timestamp))

    def max_timestamp(self) -> TimestampedOffset | None:
        """The committed record with the greatest timestamp."""
        return self._committed(self._log.max_timestamp())

    def _committed(self, found: TimestampedOffset | None) -> TimestampedOffset | None:
        if found is None or found.offset >= self.high_watermark:
            return None
        return found

    # -- change ---------------------------------------------------------------------------------

    async def delete_before(self, offset: Offset) -> Offset:
        """DeleteRecords: everything below `offset` goes. Returns the new start of the log."""
        if not 0 <= offset <= self.high_watermark:
            raise OffsetOutOfRange(
                f"Cannot delete records of {self.name} before {offset}: the high watermark is "
                f"{self.high_watermark}"
            )
        if offset > self._log.log_start_offset:
            await asyncio.to_thread(self._log.delete_before, offset)
        return self._log.log_start_offset

    def set_config(self, config: TopicConfig) -> None:
        self.config = config
        self._log.set_config(log_config(config))

    def save_producers(self) -> None:
        """Write a producer snapshot at the end of the log. Blocking, small."""
        offset = self._log.log_end_offset
        self._log.save_snapshot(offset, self.producers.snapshot())
        self.producers.saved_offset = offset
        self._log.prune_snapshots(keep=SNAPSHOTS_KEPT)

    def wake(self) -> None:
        """Have everyone who waits for data look again now."""
        for watcher in tuple(self._watchers):
            watcher.interrupt()

    def close(self) -> None:
        """Take no more requests: those that wait look again and find the partition gone."""
        self.closed = True
        self.wake()
        self.sync_failed(StorageFailed(f"{self.name} was closed"))
