"""A running back end: commands and hand-overs in, everything that follows out, in one transaction.

One pass: ensure topics, open a transactional writer, join the group, restore what it assigns, and then
batch after batch. Whatever goes wrong with the log ends the pass with everything that is held in memory,
and the next one begins from what the log says: nothing is ever known only here.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass

from kafkaesque.chat.config import BackendConfig
from kafkaesque.chat.home import Counts, Home, Surroundings
from kafkaesque.chat.live_gateways import LiveGateways
from kafkaesque.chat.restore import journal_mark
from kafkaesque.chat.rules.decide import Moment
from kafkaesque.chat.rules.snapshot import encode_snapshot
from kafkaesque.chat.rules.versions import HOME_VERSION
from kafkaesque.chat.seats import Seats
from kafkaesque.chat.tables import Tables
from kafkaesque.client.ports import (
    CommitPoint,
    Log,
    LogError,
    LogReader,
    LogWriter,
    Received,
    Record,
    Subscription,
    TransactionsUnsupported,
    WriterOptions,
)
from kafkaesque.events.chat import CHAT_HANDOVER, CHAT_JOURNAL, CHAT_SNAPSHOT, CHAT_TOPICS
from kafkaesque.events.gateway import GATEWAY_TOPICS, REPLIES, command_topic
from kafkaesque.model.errors import check
from kafkaesque.model.ids import Offset, PartitionIndex, TopicPartition

logger = logging.getLogger(__name__)

RETRY_SECONDS = 0.2
RETRY_SECONDS_MAX = 5.0


class TopicsDiffer(Exception):
    """Topics that must have equally many partitions have not: a user would have two homes."""


@dataclass(slots=True)
class State:
    """What can be seen of a back end from outside."""

    passes: int = 0
    batches: int = 0
    snapshots: int = 0
    ready: bool = False
    partitions: tuple[int, ...] = ()
    restored: int = 0
    restore_ms: int = 0
    predecessors_ended: int = 0
    decide_ms_sum: float = 0.0
    """What the rules took; the rest of a batch's time is the log's."""
    transaction_ms_sum: float = 0.0
    transaction_ms_max: float = 0.0
    error: str | None = None

    def note_transaction(self, seconds: float) -> None:
        self.batches += 1
        self.transaction_ms_sum += seconds * 1000
        self.transaction_ms_max = max(self.transaction_ms_max, seconds * 1000)


class Backend:
    """Runs until `stop`. `name` tells back ends apart, also across restarts."""

    def __init__(self, log: Log, name: str, config: BackendConfig) -> None:
        self._log = log
        self._config = config
        self.name = name
        self._transactional_id = f"chat-backend-{name}"
        self._stopping = asyncio.Event()
        self._passing: asyncio.Task[None] | None = None
        self.counts = Counts()
        self.state = State()
        self._gateways = LiveGateways(config.zookeeper_connect)
        self.tables = Tables(log, self._gateways)

    @property
    def group(self) -> str:
        return f"chat-backend-{HOME_VERSION}"

    def stop(self) -> None:
        self._stopping.set()
        if self._passing is not None and not self.state.ready:
            # Still on its way in: a log that does not answer must not hold up the end.
            self._passing.cancel()

    async def run(self) -> None:
        """TransactionsUnsupported and TopicsDiffer end it; other trouble with the log is waited out."""
        wait_s = RETRY_SECONDS
        while not self._stopping.is_set():
            started_s = time.monotonic()
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
                if time.monotonic() - started_s > RETRY_SECONDS_MAX:
                    wait_s = RETRY_SECONDS
                logger.warning("%s; from the log's state again in %.1f s", error, wait_s)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(wait_s):
                        await self._stopping.wait()
                wait_s = min(2 * wait_s, RETRY_SECONDS_MAX)

    async def _pass(self) -> None:
        self.state.passes += 1
        reply_partitions = await self._prepare_topics()
        async with contextlib.AsyncExitStack() as stack:
            await self._gateways.start()
            stack.push_async_callback(self._gateways.stop)
            self.tables = Tables(self._log, self._gateways)
            stack.push_async_callback(self.tables.stop)
            await self.tables.start()
            # A writer of the same name that was killed is fenced, and its transaction ended, here.
            options = WriterOptions(
                transactional_id=self._transactional_id,
                linger_ms=0,
                delivery_timeout_ms=self._config.transaction_timeout_ms,
            )
            writer = await self._log.open_writer(options)
            stack.push_async_callback(writer.close)
            inputs = (command_topic(HOME_VERSION).name, CHAT_HANDOVER.name)
            seats = Seats(self._log, writer, self._transactional_id, inputs)
            reader = await self._log.open_reader(Subscription(inputs, self.group, listener=seats))
            seats.reader = reader
            stack.push_async_callback(reader.close)
            stack.callback(self._unready)
            await self._serve(_Desk(reader, writer, seats, reply_partitions))

    def _unready(self) -> None:
        self.state.ready = False

    async def _prepare_topics(self) -> int:
        """The number of reply slots."""
        await self._log.admin.ensure_topics([*GATEWAY_TOPICS, *CHAT_TOPICS])
        names = (
            command_topic(HOME_VERSION).name,
            CHAT_HANDOVER.name,
            CHAT_JOURNAL.name,
            CHAT_SNAPSHOT.name,
        )
        counts = {name: await self._log.admin.partition_count(name) for name in names}
        if len(set(counts.values())) != 1:
            raise TopicsDiffer(f"these must have equally many partitions: {counts}")
        return await self._log.admin.partition_count(REPLIES.name)

    async def _serve(self, desk: _Desk) -> None:
        wait_s = self._config.poll_wait_ms / 1000
        while not self._stopping.is_set():
            records = await desk.reader.read(self._config.batch_records_max, wait_s)
            self._show(desk.seats)
            self.tables.check()
            if records:
                await self._process(desk, records)
            for home in list(desk.seats.homes.values()):
                if home.facts_since_snapshot >= self._config.snapshot_facts:
                    await self._write_snapshot(desk, home)

    def _show(self, seats: Seats) -> None:
        state = self.state
        state.ready = seats.joined.is_set()
        state.partitions = tuple(sorted(seats.homes))
        state.restored, state.restore_ms = seats.restored, seats.restore_ms
        state.predecessors_ended = len(seats.ended)
        if state.ready:
            state.error = None

    async def _process(self, desk: _Desk, records: Sequence[Received]) -> None:
        """All of a batch, or nothing of it."""
        started_s = time.monotonic()
        now_ms = time.time_ns() // 1_000_000
        surroundings = Surroundings(
            Moment(now_ms, self.tables.is_online), self.tables, desk.reply_partitions, self.counts
        )
        journal: list[Record] = []
        others: list[Record] = []
        done: dict[TopicPartition, Offset] = {}
        for record in records:
            home = desk.seats.homes.get(record.partition)
            check(home is not None, f"a record of partition {record.partition}, not served here")
            if home is not None:
                decided = home.take(record, surroundings)
                others += decided.others
                if decided.journal is not None:
                    journal.append(decided.journal)
                place = TopicPartition(record.topic, record.partition)
                done[place] = Offset(record.offset + 1)
        decided_s = time.monotonic()
        self.state.decide_ms_sum += (decided_s - started_s) * 1000
        async with desk.writer.transaction():
            offsets = await desk.writer.send([*journal, *others])
            _note_journal(desk.seats.homes, journal, offsets)
            await desk.writer.send_offsets(desk.reader, desk.points(done))
        self.state.note_transaction(time.monotonic() - decided_s)

    async def _write_snapshot(self, desk: _Desk, home: Home) -> None:
        """With the offsets again, so that a member that the group has left behind cannot write it."""
        records = [
            Record(CHAT_SNAPSHOT.name, key, value, partition=home.partition)
            for key, value in encode_snapshot(home.state, home.journal_next)
        ]
        positions = await desk.reader.positions()
        done = {place: at for place, at in positions.items() if place.partition == home.partition}
        if not done:
            # Nothing was read here yet, so there is no offset to be refused by: later, then.
            return
        async with desk.writer.transaction():
            await desk.writer.send(records)
            await desk.writer.send_offsets(desk.reader, desk.points(done))
        home.state.dirty.clear()
        home.facts_since_snapshot = 0
        self.state.snapshots += 1


@dataclass(frozen=True, slots=True)
class _Desk:
    """What one pass works with."""

    reader: LogReader
    writer: LogWriter
    seats: Seats
    reply_partitions: int

    def points(self, done: dict[TopicPartition, Offset]) -> dict[TopicPartition, CommitPoint]:
        homes = self.seats.homes
        return {
            place: CommitPoint(at, journal_mark(homes[place.partition].journal_next))
            for place, at in done.items()
        }


def _note_journal(
    homes: dict[PartitionIndex, Home], journal: Sequence[Record], offsets: Sequence[Offset]
) -> None:
    """`offsets` begins with those of `journal`."""
    for record, offset in zip(journal, offsets, strict=False):
        if record.partition is not None:
            home = homes[record.partition]
            home.journal_next = Offset(max(home.journal_next, offset + 1))
