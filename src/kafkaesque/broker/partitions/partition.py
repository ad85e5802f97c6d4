"""One partition on this node: append, commit, read.

Offsets: log_start <= high_watermark <= log_end, and the first two never decrease. The high watermark
is the end of what Raft has committed: on the disks of a majority with `flush=always`, in their page
caches with `flush=never`. Consumers never see records beyond it, and acks=all never acknowledges
them.

Only the leader serves, and only while it is certain to lead. Everything here runs on the event
loop's thread.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections.abc import Callable, Container
from operator import itemgetter

import msgspec

from kafkaesque.broker.partitions.environment import Environment
from kafkaesque.broker.partitions.producer_state import load_producers, read_marker, trim_log
from kafkaesque.broker.partitions.rules import admission
from kafkaesque.broker.partitions.rules.admission import Appended, Trim
from kafkaesque.broker.partitions.rules.markers import decode_marker
from kafkaesque.broker.partitions.rules.open_transactions import AbortedIndex, VerificationGuard
from kafkaesque.broker.partitions.rules.producers import ProducerTable
from kafkaesque.broker.partitions.waiting import BytesAwaited, held_by, notify_watchers
from kafkaesque.broker.raft.ready import Leadership
from kafkaesque.broker.raft.types import LogIndex, Snapshot
from kafkaesque.broker.replication.commit_waiters import CommitWaiters
from kafkaesque.broker.replication.replica import Replica
from kafkaesque.broker.replication.rules.state_machine import StateMachine
from kafkaesque.broker.storage.chain import ReadResult
from kafkaesque.broker.storage.config import log_config
from kafkaesque.broker.storage.log import Log
from kafkaesque.broker.storage.lookup import TimestampedOffset
from kafkaesque.broker.storage.open_files import FileRange, Place
from kafkaesque.model.errors import (
    CorruptMessage,
    FencedLeaderEpoch,
    KafkaError,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    OutOfOrderSequence,
    StorageFailed,
    UnknownLeaderEpoch,
    UnknownTopicOrPartition,
    check,
)
from kafkaesque.model.ids import (
    NO_EPOCH,
    NO_PRODUCER,
    NO_TIMESTAMP,
    LeaderEpoch,
    Offset,
    TimestampMs,
    TopicId,
    TopicPartition,
)
from kafkaesque.model.settings import TopicConfig
from kafkaesque.records.batch import BatchHeader, read_header, stamp, stamp_append_time

Append = Callable[[memoryview], Appended]


class Inspections:
    """Appends whose records must be inspected first. Worker threads inspect them; they are appended
    in order of arrival."""

    __slots__ = ("_loop", "under_way")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.under_way: list[asyncio.Task[Appended]] = []

    def add(
        self, records: memoryview, config: TopicConfig, append: Append
    ) -> asyncio.Task[Appended]:
        """Inspect `records`, then `append` the result after everything that arrived before."""
        previous = self.under_way[-1] if self.under_way else None
        task = self._loop.create_task(self._run(records, config, append, previous))
        self.under_way.append(task)
        task.add_done_callback(self.under_way.remove)
        return task

    async def _run(
        self,
        records: memoryview,
        config: TopicConfig,
        append: Append,
        previous: asyncio.Task[Appended] | None,
    ) -> Appended:
        stored = await self._loop.run_in_executor(None, admission.inspect, records, config)
        if previous is not None:
            await asyncio.wait([previous])
        return append(stored)


logger = logging.getLogger(__name__)

SNAPSHOTS_KEPT = 2
"""The newest may be beyond the end of the log that a crash leaves; then the one before it is used."""

_NO_RECORDS = memoryview(b"")
_make_tuple = tuple.__new__  # half the price of a NamedTuple's own constructor


class Partition:
    """See the module's docstring. `producers` is a fold of the log up to its end, unless stale."""

    __slots__ = (
        "_appended",
        "_commit_waiters",
        "_env",
        "_inspections",
        "_rules",
        "_unsynced_since_ms",
        "_watchers",
        "are_producers_stale",
        "closed",
        "config",
        "high_watermark",
        "name",
        "producers",
        "replica",
        "topic_id",
    )

    waits_for_room = False

    def __init__(
        self,
        name: TopicPartition,
        topic_id: TopicId,
        producers: ProducerTable,
        config: TopicConfig,
        high_watermark: Offset,
        env: Environment[Partition],
        new_replica: Callable[[StateMachine], Replica],
    ) -> None:
        """`new_replica` creates the replica that reports to the partition."""
        self.name = name
        self.topic_id = topic_id
        self.config = config
        self.producers = producers
        self.high_watermark = high_watermark
        self.closed: KafkaError | None = None
        """The error for all requests once the partition is closed; None while it is open."""
        self._env = env
        self.are_producers_stale = False
        """The log may have lost batches that `producers` contains."""
        self._unsynced_since_ms: TimestampMs | None = None
        """When the oldest record was appended that no sync covers; used with flush=never."""
        self._watchers: set[BytesAwaited] = set()
        self._appended: list[tuple[Offset, int]] = []
        """(end offset, size in bytes) of each batch above the high watermark, oldest first."""
        self._commit_waiters: CommitWaiters[Offset] = CommitWaiters(env.loop.create_future)
        self._inspections = Inspections(env.loop)
        self._rules = admission.Rules(config, env.validation)
        self.replica = new_replica(self)

    @property
    def log(self) -> Log:
        """For maintenance and description. Appends and reads go through the partition."""
        return self.replica.entries.log

    @property
    def log_start_offset(self) -> Offset:
        return self.log.log_start_offset

    @property
    def log_end_offset(self) -> Offset:
        return self.log.log_end_offset

    @property
    def stable_offset(self) -> Offset:
        """The last stable offset: read_committed readers stop here (see `open_transactions`)."""
        transactions = self.producers.transactions
        if not len(transactions):
            return self.high_watermark
        return max(transactions.stable_offset(self.high_watermark), self.log_start_offset)

    @property
    def aborted_transactions(self) -> AbortedIndex:
        return self.producers.transactions.aborted

    @property
    def leader_epoch(self) -> LeaderEpoch:
        return LeaderEpoch(self.replica.leadership.term)

    @property
    def failure(self) -> StorageFailed | None:
        """The disk error after which this replica must be reopened; None without one."""
        return self.closed if isinstance(self.closed, StorageFailed) else None

    @property
    def leads(self) -> bool:
        return self.replica.is_leader and self.closed is None

    def check_serves(self) -> None:
        """Raise unless this node is certain to lead the partition now."""
        self.check_leads()
        if not self._env.replicas.may_serve(self.replica):
            raise self._note_retriable(NotLeaderOrFollower(f"{self.name} is not led by this node"))

    # -- append ---------------------------------------------------------------------------------

    def append(
        self, records: memoryview, *, all_replicas: bool, guard: VerificationGuard | None = None
    ) -> Appended | asyncio.Task[Appended]:
        """Append the one batch in `records`, which is stamped in place.

        Usually done on return; a task if the records must be inspected first. Batches are appended
        in the order of the calls. `guard` permits the batch to begin a transaction here.
        """
        self.check_leads()
        if all_replicas and self.config.min_insync_replicas > 1:
            self._check_in_sync()
        now_ms, rules = self._env.clock.wall_ms(), self._rules
        header = rules.admit(records, now_ms)
        if self._inspections.under_way or (rules.may_inspect and rules.needs_inspection(header)):
            return self._inspections.add(
                records, self.config, lambda stored: self._append_inspected(stored, guard)
            )
        if header.producer_id != NO_PRODUCER:
            earlier = self._judge(header, guard)
            if earlier is not None:
                return earlier
        return self._store(records, header, now_ms)

    def check_leads(self) -> None:
        if self.closed is not None:
            raise self.closed
        if not self.replica.is_leader:
            raise self._note_retriable(NotLeaderOrFollower(f"{self.name} is not led by this node"))

    def _note_retriable(self, error: KafkaError) -> KafkaError:
        """Return `error`, which makes a producer retry its batch here or elsewhere, and remember when
        that happened."""
        self.producers.retriable_error_s = self._env.clock.monotonic()
        return error

    def _check_in_sync(self) -> None:
        count, needed = len(self.replica.in_sync()), self.config.min_insync_replicas
        if count < needed:
            few = f"{self.name} has {count} replica(s) in sync, min.insync.replicas is {needed}"
            raise self._note_retriable(NotEnoughReplicas(few))

    def _append_inspected(self, records: memoryview, guard: VerificationGuard | None) -> Appended:
        self.check_leads()
        header, now_ms = read_header(records), self._env.clock.wall_ms()
        return self._judge(header, guard) or self._store(records, header, now_ms)

    def _judge(self, header: BatchHeader, guard: VerificationGuard | None) -> Appended | None:
        """Check sequence and transaction of a batch. Returns the first append if it is a retry, None if
        it must be stored."""
        producers, clock = self.producers, self._env.clock
        try:
            earlier = producers.judge(header, guard)
        except KafkaError as refusal:
            self.check_serves()  # another leader may have more of this producer
            if not isinstance(refusal, OutOfOrderSequence) or producers.is_repeated(header):
                raise
            last_offset = producers.last_offset(header.producer_id)
            is_own = last_offset is None or self.log.epoch_at(last_offset) == self.leader_epoch
            if is_own and not producers.had_retriable_error(clock.monotonic()):
                raise
            raise NotLeaderOrFollower(f"{self.name} rejected an earlier batch: {refusal}") from None
        if earlier is None:
            if producers.retriable_error_s and producers.overtakes(header, clock.monotonic()):
                raise NotLeaderOrFollower(f"{self.name} rejected this producer's first batch")
            return None
        end_offset = Offset(earlier.base_offset + header.record_count)
        append_time = earlier.timestamp if self.config.uses_append_time else NO_TIMESTAMP
        return Appended(earlier.base_offset, end_offset, append_time, self.log_start_offset)

    def append_own(self, batch: bytearray) -> Appended:
        """Append a batch that the broker created itself (internal topics, markers)."""
        self.check_leads()
        view = memoryview(batch)
        return self._store(view, read_header(view), self._env.clock.wall_ms())

    def _store(self, records: memoryview, header: BatchHeader, now_ms: TimestampMs) -> Appended:
        append_time = NO_TIMESTAMP
        if self._rules.uses_append_time:
            append_time = now_ms
            stamp_append_time(records, 0, append_time)
            header = read_header(records)
        replica = self.replica
        log = replica.entries.log
        base_offset = replica.next_offset
        header = stamp(records, header, base_offset, self.leader_epoch)
        try:
            is_committed = replica.append(records, header, now_ms)
        except KafkaError as error:
            self._note_retriable(error)
            raise
        if header.producer_id != NO_PRODUCER:
            self.producers.apply(header, decode_marker(records) if header.is_control else None)
        end_offset = Offset(base_offset + header.last_offset_delta + 1)
        if not is_committed:
            self._appended.append((end_offset, header.size_bytes))
        elif self._watchers:
            self._advance(end_offset, header.size_bytes)
        else:
            self.high_watermark = end_offset
        if self._unsynced_since_ms is None and not self._env.flush_always:
            self._unsynced_since_ms = now_ms
        return _make_tuple(Appended, (base_offset, end_offset, append_time, log.log_start_offset))

    def commit(self, appended: Appended, *, all_replicas: bool) -> asyncio.Future[None] | None:
        """Return the future that the acknowledgement of `appended` waits for; None if it is due now.

        With one replica acks=1 waits for the commit too: clients rely on reading back what a lone
        broker acknowledged, as they can with Apache Kafka.
        """
        is_committed = appended.end_offset <= self.high_watermark
        min_insync = self.config.min_insync_replicas
        if is_committed and min_insync == 1:
            return None
        must_commit = all_replicas or self.replica.is_alone
        # A batch that is only held in memory would be lost in a crash.
        if not must_commit and appended.end_offset <= self.log_end_offset:
            return None
        if min_insync > len(self.replica.membership.voters) // 2 + 1:
            return self._env.loop.create_task(self._widely_held(appended.end_offset))
        if is_committed:
            return None
        return self.committed_to(appended.end_offset)

    def committed_to(self, end_offset: Offset) -> asyncio.Future[None]:
        """Done when the high watermark, which is below `end_offset` now, has reached it."""
        return self._commit_waiters.add(end_offset)

    async def _widely_held(self, end_offset: Offset) -> None:
        """min.insync.replicas exceeds a majority, so being committed is not enough."""
        if end_offset > self.high_watermark:
            await self.committed_to(end_offset)
        index = self.replica.entries.index_at(Offset(end_offset - 1))
        await held_by(self.replica, index, self.config.min_insync_replicas, self.check_leads)

    # -- callbacks of the replica -----------------------------------------------------------------

    def leadership_changed(self, leadership: Leadership) -> None:
        if not self.replica.is_leader:
            self._lose_leadership()
        elif self.are_producers_stale:
            self.producers = load_producers(self.replica.entries)
            self.are_producers_stale = False
        self._env.leadership_changes.add(self)

    def _lose_leadership(self) -> None:
        """Uncommitted batches may still be committed or be lost: their producers must retry at the next
        leader."""
        if self._appended or self.log_end_offset > self.high_watermark:
            self.are_producers_stale = True
        self._appended.clear()
        self.producers.transactions.drop_guards()
        self._commit_waiters.fail_all(
            NotLeaderOrFollower(f"{self.name} is not led by this node any more")
        )
        self.wake()

    def committed(self, index: LogIndex, end_offset: Offset) -> None:
        if end_offset <= self.high_watermark:
            return
        count = bisect_right(self._appended, end_offset, key=itemgetter(0))
        size_bytes = sum(size for _, size in self._appended[:count])
        del self._appended[:count]
        self._advance(end_offset, size_bytes)
        if self._commit_waiters.pending:
            self._commit_waiters.advance(end_offset)

    def appended(self, header: BatchHeader) -> None:
        if not self.are_producers_stale:
            self.producers.apply(
                header, read_marker(self.log, header) if header.is_control else None
            )

    def control(self, payload: bytes) -> None:
        offset = Offset(msgspec.msgpack.decode(payload, type=Trim).offset)
        self._env.loop.create_task(self._trim(offset))

    def truncated(self, end_offset: Offset) -> None:
        check(end_offset >= self.high_watermark, f"{self.name} lost what was committed")
        self.are_producers_stale = True

    def installing(self, snapshot: Snapshot) -> None:
        """Nothing to save: a partition has no state outside its log."""

    def installed(self, snapshot: Snapshot) -> None:
        self.are_producers_stale = True
        self.high_watermark = max(self.high_watermark, self.replica.entries.folded_offset)

    def failed(self, error: StorageFailed) -> None:
        """Serve no more requests; the partition table opens a new object in its place."""
        self.close(error)
        self._env.leadership_changes.add(self)

    def _advance(self, offset: Offset, size_bytes: int) -> None:
        if not self._watchers:
            self.high_watermark = offset
            return
        has_transactions, stable_before = len(self.producers.transactions) > 0, self.stable_offset
        self.high_watermark = offset
        is_stable = self.stable_offset > stable_before if has_transactions else None
        notify_watchers(self._watchers, size_bytes, is_stable_moved=is_stable)

    def flush_if_due(self) -> None:
        """Sync by `flush.ms`, or after a segment was closed, what no acknowledgement waits for."""
        since_ms = self._unsynced_since_ms
        if since_ms is None or self.closed is not None:
            return
        age_ms = self._env.clock.wall_ms() - since_ms
        if age_ms >= self.config.flush_ms or self.log.has_unsynced_closed_segment:
            self._unsynced_since_ms = None
            self._env.replicas.sync_log(self.replica)

    # -- read -----------------------------------------------------------------------------------

    def check_epoch(self, believed: int) -> None:
        """Reject a client that has another leader epoch than this leader (KIP-320)."""
        if believed > self.leader_epoch:
            raise UnknownLeaderEpoch(f"{self.name} is at leader epoch {self.leader_epoch}")
        if NO_EPOCH < believed < self.leader_epoch:
            raise FencedLeaderEpoch(f"{self.name} is at leader epoch {self.leader_epoch}")

    def readable_bytes(self, offset: Offset, *, stable_only: bool) -> int:
        """Estimate how many committed bytes can be read from `offset` on. May be too large by an index
        interval and by the records of open transactions. 0 only if there is nothing."""
        if offset >= self._read_limit(offset, stable_only):
            return 0
        uncommitted_bytes = sum(size for _, size in self._appended)
        return max(1, self.log.size_from(offset) - uncommitted_bytes)

    def missing_in_memory(
        self, offset: Offset, max_bytes: int, tried: Container[Place]
    ) -> FileRange | None:
        """The file range to load so that `read` does not wait for the disk; None if there is none."""
        return self.log.on_disk(offset, max_bytes, tried)

    def _read_limit(self, offset: Offset, stable_only: bool) -> Offset:
        """Return the offset at which a read from `offset` must end. Raises OffsetOutOfRange."""
        start_offset = self.log.log_start_offset
        if not start_offset <= offset <= self.high_watermark:
            raise OffsetOutOfRange(
                f"Offset {offset} of {self.name} is outside [{start_offset}, {self.high_watermark}]"
            )
        return self.stable_offset if stable_only else self.high_watermark

    def read(
        self, offset: Offset, max_bytes: int, *, at_least_one: bool, stable_only: bool = False
    ) -> ReadResult:
        """Read committed batches from the one with `offset` on; `stable_only`: up to the last stable
        offset."""
        limit_offset = self._read_limit(offset, stable_only)
        if offset >= limit_offset:
            return ReadResult(_NO_RECORDS, offset)
        log = self.log
        entries = self.replica.entries
        limits = max_bytes, limit_offset, at_least_one, entries.folded_offset
        try:
            return log.read(offset, *limits)
        except CorruptMessage:
            self._env.replicas.damaged(self.replica)
            if (found := entries.find_again(offset)) is None or found < log.log_start_offset:
                raise
        return log.read(found, *limits)

    def watch(self, watcher: BytesAwaited) -> None:
        self._watchers.add(watcher)

    def unwatch(self, watcher: BytesAwaited) -> None:
        self._watchers.discard(watcher)

    def find_by_timestamp(self, timestamp: TimestampMs) -> TimestampedOffset | None:
        """The first committed record that is not older than `timestamp`."""
        return self._committed(self.log.find_by_timestamp(timestamp))

    def max_timestamp(self) -> TimestampedOffset | None:
        """The committed record with the greatest timestamp."""
        return self._committed(self.log.max_timestamp())

    def _committed(self, found: TimestampedOffset | None) -> TimestampedOffset | None:
        if found is None or found.offset >= self.high_watermark:
            return None
        return found

    # -- change ---------------------------------------------------------------------------------

    async def delete_before(self, offset: Offset) -> Offset:
        """DeleteRecords: delete everything below `offset`. Returns the new start of the log."""
        if not 0 <= offset <= self.high_watermark:
            limit = f"the high watermark is {self.high_watermark}"
            raise OffsetOutOfRange(f"Cannot delete records of {self.name} before {offset}: {limit}")
        if offset > self.log_start_offset:
            self.replica.propose_control(msgspec.msgpack.encode(Trim(offset)))
            await self._trim(offset)
        return self.log_start_offset

    async def _trim(self, offset: Offset) -> None:
        if self.log_start_offset < offset <= self.log_end_offset:
            self.replica.entries.drop_before(offset)
            await self._delete_before(offset)

    async def _delete_before(self, offset: Offset) -> None:
        producers = None if self.are_producers_stale else self.producers.before(offset)
        entries, journal = self.replica.entries, self._env.replicas.raft_journal
        await asyncio.to_thread(trim_log, entries, journal, offset, producers)

    async def expire(self, now_ms: TimestampMs) -> None:
        """Delete the segments that retention has expired."""
        planned = self.replica.entries.expire(now_ms, self.high_watermark)
        if planned is not None:
            before = self.log.size_bytes
            await self._delete_before(planned[0])
            logger.info("retention deleted %d bytes of %s", before - self.log.size_bytes, self.name)

    def set_config(self, config: TopicConfig) -> None:
        self.config = config
        self._rules = admission.Rules(config, self._env.validation)
        self.log.set_config(log_config(config))
        self.replica.flush_messages = self._env.flush_messages(config)

    def save_producers(self) -> None:
        """Write a producer snapshot at the end of the log. Blocking, small."""
        offset = self.log.log_end_offset
        if self.are_producers_stale or self.replica.next_offset > offset:
            return  # `producers` includes held batches, which the log may never contain
        self.producers.transactions.aborted.drop_before(self.log_start_offset)
        self.log.save_snapshot(offset, self.producers.snapshot())
        self.producers.saved_offset = offset
        self.log.prune_snapshots(keep=SNAPSHOTS_KEPT)

    def wake(self) -> None:
        """Make every waiting reader check again now."""
        for watcher in tuple(self._watchers):
            watcher.interrupt()

    def close(self, reason: KafkaError | None = None) -> None:
        """Reject all further requests, and end those that wait."""
        error = reason or UnknownTopicOrPartition(f"{self.name} is being deleted")
        self.closed = self.closed or error
        self.wake()
        self._commit_waiters.fail_all(reason or StorageFailed(f"{self.name} was closed"))
