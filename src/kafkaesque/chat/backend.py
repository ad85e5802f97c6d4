"""The chat back end: reads commands and hand-overs, writes what follows from each batch in one transaction.

One pass creates the topics, opens a transactional writer, joins the consumer group, restores the
partitions it is assigned, and then processes batch after batch. Any log error ends the pass and discards
everything in memory. The next pass starts from the log, which holds the complete state.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass

from kafkaesque.chat.assignment import AssignedPartitions, journal_metadata
from kafkaesque.chat.config import BackendConfig
from kafkaesque.chat.global_tables import GlobalTables
from kafkaesque.chat.partition import BackendCounts, HomePartition, RecordProcessor
from kafkaesque.chat.rules.decide_command import DecisionContext
from kafkaesque.chat.rules.snapshot import encode_snapshot
from kafkaesque.chat.rules.versions import HOME_VERSION
from kafkaesque.client.gateway_liveness import GatewayLiveness
from kafkaesque.client.ports import (
    CommitPoint,
    Log,
    LogError,
    LogReader,
    LogWriter,
    Received,
    Record,
    TransactionsUnsupported,
    WriterOptions,
)
from kafkaesque.events.chat import CHAT_HANDOVER, CHAT_JOURNAL, CHAT_SNAPSHOT, CHAT_TOPICS
from kafkaesque.events.gateway import GATEWAY_TOPICS, REPLIES, command_topic
from kafkaesque.model.errors import InvariantBroken
from kafkaesque.model.ids import Offset, TopicPartition
from kafkaesque.service.pass_backoff import PassBackoff, sleep_unless

logger = logging.getLogger(__name__)

RETRY_SECONDS = 0.2
RETRY_SECONDS_MAX = 5.0


class PartitionCountMismatch(Exception):
    """Topics that must have the same number of partitions differ: a user would have two homes."""


@dataclass(slots=True)
class BackendState:
    """The state of a back end for the status page and the metrics."""

    passes: int = 0
    batches: int = 0
    snapshots: int = 0
    ready: bool = False
    partitions: tuple[int, ...] = ()
    restored: int = 0
    restore_ms: int = 0
    predecessors_ended: int = 0
    decide_ms_sum: float = 0.0
    """Time spent in the rules; the rest of a batch's time is spent in the log."""
    transaction_ms_sum: float = 0.0
    transaction_ms_max: float = 0.0
    error: str | None = None

    def add_transaction(self, seconds: float) -> None:
        self.batches += 1
        self.transaction_ms_sum += seconds * 1000
        self.transaction_ms_max = max(self.transaction_ms_max, seconds * 1000)


class Backend:
    """One back end; runs until `stop`. `name` identifies it, also across restarts."""

    def __init__(self, log: Log, name: str, config: BackendConfig) -> None:
        self._log = log
        self._config = config
        self.name = name
        self._transactional_id = f"chat-backend-{name}"
        self._stopping = asyncio.Event()
        self._passing: asyncio.Task[None] | None = None
        self.counts = BackendCounts()
        self.state = BackendState()
        self._gateways = GatewayLiveness(config.zookeeper_connect, "chat")
        self.tables = GlobalTables(log, self._gateways)

    @property
    def group(self) -> str:
        return f"chat-backend-{HOME_VERSION}"

    def stop(self) -> None:
        self._stopping.set()
        if self._passing is not None and not self.state.ready:
            # Still starting: a log that does not answer must not delay the stop.
            self._passing.cancel()

    async def run(self) -> None:
        """Retries after log errors. Raises TransactionsUnsupported or PartitionCountMismatch."""
        backoff = PassBackoff(RETRY_SECONDS, RETRY_SECONDS_MAX)
        while not self._stopping.is_set():
            backoff.start()
            self._passing = asyncio.create_task(self._pass())
            try:
                await self._passing
            except asyncio.CancelledError:
                if not self._stopping.is_set():
                    raise
            except TransactionsUnsupported:
                raise
            except LogError as error:
                self.state.error = str(error)
                wait_s = backoff.next_s()
                logger.warning("pass failed: %s; next pass in %.1f s", error, wait_s)
                await sleep_unless(self._stopping, wait_s)

    async def _pass(self) -> None:
        self.state.passes += 1
        reply_partitions = await self._prepare_topics()
        async with contextlib.AsyncExitStack() as stack:
            await self._gateways.start()
            stack.push_async_callback(self._gateways.stop)
            self.tables = GlobalTables(self._log, self._gateways)
            stack.push_async_callback(self.tables.stop)
            await self.tables.start()
            # Opening the writer fences a killed back end of the same name and aborts its transaction.
            options = WriterOptions(
                transactional_id=self._transactional_id,
                linger_ms=0,
                delivery_timeout_ms=self._config.transaction_timeout_ms,
            )
            writer = await self._log.open_writer(options)
            stack.push_async_callback(writer.close)
            inputs = (command_topic(HOME_VERSION).name, CHAT_HANDOVER.name)
            assigned = AssignedPartitions(self._log, writer, self._transactional_id, inputs)
            reader = await assigned.open_reader(self.group)
            stack.push_async_callback(reader.close)
            stack.callback(self._unready)
            processor = RecordProcessor(self.tables, reply_partitions, self.counts)
            batches = _BatchLoop(
                self._config, reader, writer, assigned, processor, self.tables, self.state
            )
            await batches.run(self._stopping)

    def _unready(self) -> None:
        self.state.ready = False

    async def _prepare_topics(self) -> int:
        """Creates missing topics and returns the number of partitions of gw.reply."""
        await self._log.admin.ensure_topics([*GATEWAY_TOPICS, *CHAT_TOPICS])
        names = (
            command_topic(HOME_VERSION).name,
            CHAT_HANDOVER.name,
            CHAT_JOURNAL.name,
            CHAT_SNAPSHOT.name,
        )
        counts = {name: await self._log.admin.partition_count(name) for name in names}
        if len(set(counts.values())) != 1:
            raise PartitionCountMismatch(
                f"these topics must have the same number of partitions: {counts}"
            )
        return await self._log.admin.partition_count(REPLIES.name)


@dataclass(frozen=True, slots=True)
class _BatchLoop:
    """The processing loop of one pass: read a batch, decide it, write it in one transaction."""

    config: BackendConfig
    reader: LogReader
    writer: LogWriter
    assigned: AssignedPartitions
    processor: RecordProcessor
    tables: GlobalTables
    status: BackendState

    async def run(self, stopping: asyncio.Event) -> None:
        wait_s = self.config.poll_wait_ms / 1000
        while not stopping.is_set():
            records = await self.reader.read(self.config.batch_records_max, wait_s)
            self._update_status()
            self.tables.check()
            if records:
                await self._process(records)
            for partition in list(self.assigned.served.values()):
                if partition.facts_since_snapshot >= self.config.snapshot_facts:
                    await self._write_snapshot(partition)

    def _update_status(self) -> None:
        status, assigned = self.status, self.assigned
        status.ready = assigned.joined.is_set()
        status.partitions = tuple(sorted(assigned.served))
        status.restored, status.restore_ms = assigned.restored, assigned.restore_ms
        status.predecessors_ended = len(assigned.fenced)
        if status.ready:
            status.error = None

    async def _process(self, records: Sequence[Received]) -> None:
        """Writes all results of a batch together with its offsets, or nothing."""
        started_s = time.monotonic()
        context = DecisionContext(time.time_ns() // 1_000_000, self.tables.is_online)
        journal: list[Record] = []
        others: list[Record] = []
        done: dict[TopicPartition, Offset] = {}
        for record in records:
            partition = self.assigned.served.get(record.partition)
            if partition is None:
                raise InvariantBroken(f"read a record of unserved partition {record.partition}")
            processed = self.processor.process(partition, record, context)
            others += processed.others
            if processed.journal is not None:
                journal.append(processed.journal)
            done[TopicPartition(record.topic, record.partition)] = Offset(record.offset + 1)
        decided_s = time.monotonic()
        self.status.decide_ms_sum += (decided_s - started_s) * 1000
        async with self.writer.transaction():
            offsets = await self.writer.send([*journal, *others])
            self._advance_journals(journal, offsets)
            await self.writer.send_offsets(self.reader, self._commit_points(done))
        self.status.add_transaction(time.monotonic() - decided_s)

    async def _write_snapshot(self, partition: HomePartition) -> None:
        """Commits the current offsets with the snapshot: the group's generation check then also
        prevents an expelled member from writing one."""
        records = [
            Record(CHAT_SNAPSHOT.name, key, value, partition=partition.index)
            for key, value in encode_snapshot(partition.state, partition.journal_next)
        ]
        positions = await self.reader.positions()
        done = {place: at for place, at in positions.items() if place.partition == partition.index}
        if not done:
            # Nothing was read yet, so there is no offset to commit; a later batch writes it.
            return
        async with self.writer.transaction():
            await self.writer.send(records)
            await self.writer.send_offsets(self.reader, self._commit_points(done))
        partition.state.dirty.clear()
        partition.facts_since_snapshot = 0
        self.status.snapshots += 1

    def _advance_journals(self, journal: Sequence[Record], offsets: Sequence[Offset]) -> None:
        """`offsets` starts with those of the `journal` records."""
        for record, offset in zip(journal, offsets, strict=False):
            if record.partition is not None:
                partition = self.assigned.served[record.partition]
                partition.journal_next = Offset(max(partition.journal_next, offset + 1))

    def _commit_points(
        self, done: dict[TopicPartition, Offset]
    ) -> dict[TopicPartition, CommitPoint]:
        served = self.assigned.served
        return {
            place: CommitPoint(at, journal_metadata(served[place.partition].journal_next))
            for place, at in done.items()
        }
