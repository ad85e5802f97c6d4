"""Reading a topic for the connections of this gateway: one live reader, one that sweeps.

The rules are `outlets.Board`'s. Here is what blocks and fails: when the log does, both readers are made
anew, everybody is behind, and nobody has missed anything.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Mapping
from typing import Protocol

from kafkaesque.client.ports import (
    Assignment,
    Log,
    LogError,
    LogReader,
    OffsetGone,
    Received,
    Span,
)
from kafkaesque.edge.protocol.positions import Position, prefix_of
from kafkaesque.events.envelope import MalformedEvent
from kafkaesque.gateway.rules.outgoing import Outgoing
from kafkaesque.gateway.rules.outlets import Board, Outlet
from kafkaesque.model.ids import Offset, PartitionIndex, TopicPartition

logger = logging.getLogger(__name__)

READ_RECORDS = 1000
LIVE_WAIT_SECONDS = 0.1
"""Also how long a change of what is read may wait for its turn."""
SWEEP_WAIT_SECONDS = 0.05
RETRY_SECONDS = 0.5

OutletOf = Outlet[Outgoing]


class FeedSight(Protocol):
    """What a feed tells of itself."""

    def delivered(self, outlets: int, appended_ms: int) -> None: ...

    def malformed(self) -> None: ...


class Feed:
    """One topic. `rooms`: its keys are rooms, and their events say so."""

    def __init__(
        self, log: Log, topic: str, sight: FeedSight, *, rooms: bool, linger_s: float
    ) -> None:
        self._log = log
        self._topic = topic
        self._sight = sight
        self._rooms = rooms
        self._linger_s = linger_s
        self._board: Board[Outgoing] | None = None
        self._prefixes: dict[PartitionIndex, str] = {}
        self._behind = asyncio.Event()
        self.task: asyncio.Task[None] | None = None
        self.partition_count = 0
        self.error: str | None = None

    @property
    def board(self) -> Board[Outgoing]:
        if self._board is None:
            raise LogError(f"{self._topic} is not read yet")
        return self._board

    async def start(self) -> None:
        """The topic must be there."""
        topic_id = (await self._log.admin.topic_ids([self._topic]))[self._topic]
        self.partition_count = await self._log.admin.partition_count(self._topic)
        self._board = Board(topic_id)
        self._prefixes = {
            PartitionIndex(number): prefix_of(topic_id, PartitionIndex(number))
            for number in range(self.partition_count)
        }
        self.task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        if self.task is not None:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)

    # -- outlets -------------------------------------------------------------------------------------

    async def join(self, outlet: OutletOf) -> None:
        if self.board.is_doubtful(outlet) and isinstance(outlet.wanted, Position):
            spans = await self._log.admin.spans(self._topic)
            if outlet.wanted.offset >= spans[self._place(outlet.partition)].end:
                outlet.refused("the position lies beyond the end of the log")
                return
        self.board.add(outlet)
        self._behind.set()

    def leave(self, outlet: OutletOf) -> None:
        self.board.remove(outlet, time.monotonic())

    def ready(self, outlet: OutletOf) -> None:
        self.board.ready(outlet)
        self._behind.set()

    def _place(self, partition: PartitionIndex) -> TopicPartition:
        return TopicPartition(self._topic, partition)

    # -- reading -------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._live())
                    group.create_task(self._sweep())
            except* LogError as errors:
                self.error = str(errors.exceptions[0])
                logger.warning("%s is read anew: %s", self._topic, self.error)
            self.board.forget_all()
            await asyncio.sleep(RETRY_SECONDS)

    async def _live(self) -> None:
        reader = await self._log.open_reader(Assignment({}))
        try:
            while True:
                await self._follow_interest(reader)
                records = await reader.read(READ_RECORDS, LIVE_WAIT_SECONDS)
                # From here to `moved` nothing may wait: the sweep compares itself with the cursor.
                for record in records:
                    self._hand_out(record)
                self.board.moved(_by_partition(await reader.positions()))
        finally:
            await _close(reader)

    async def _follow_interest(self, reader: LogReader) -> None:
        idle = self.board.idle(time.monotonic(), self._linger_s)
        if idle:
            await reader.drop([self._place(number) for number in idle])
        wanted = self.board.unread()
        if wanted:
            spans = await self._log.admin.spans(self._topic)
            ends = {self._place(number): spans[self._place(number)].end for number in wanted}
            await reader.add(ends)
            for number in wanted:
                self.board.open(number, spans[self._place(number)])
            self.error = None
            self._behind.set()

    def _hand_out(self, record: Received) -> None:
        if record.key is None or not self.board.wants(record.partition, record.key):
            return
        event = self._event(record)
        if event is not None:
            taken = self.board.live(record.partition, record.offset, record.key, event)
            if taken:
                self._sight.delivered(taken, record.timestamp_ms)

    def _event(self, record: Received) -> Outgoing | None:
        try:
            key = record.key or b""
            room = key.decode() if self._rooms else None
            return Outgoing(record, self._prefixes[record.partition], room)
        except (MalformedEvent, UnicodeDecodeError) as error:
            logger.warning("no event at %s-%d: %s", record.topic, record.offset, error)
            self._sight.malformed()
            return None

    # -- sweeping ------------------------------------------------------------------------------------

    async def _sweep(self) -> None:
        reader: LogReader | None = None
        try:
            while True:
                due = self.board.sweeps_due()
                if reader is None:
                    reader = await self._log.open_reader(Assignment({}, strict=True))
                if due:
                    await reader.add({self._place(number): at for number, at in due.items()})
                if not reader.assignment():
                    self._behind.clear()
                    if not self.board.sweeps_due_any():
                        await self._behind.wait()
                    continue
                try:
                    await self._sweep_on(reader)
                except OffsetGone:
                    await _close(reader)
                    reader = None
                    await self._drop_the_lost()
        finally:
            if reader is not None:
                await _close(reader)

    async def _sweep_on(self, reader: LogReader) -> None:
        records = await reader.read(READ_RECORDS, SWEEP_WAIT_SECONDS)
        for record in records:
            if record.key is not None and self.board.sweeps(record.partition, record.key):
                event = self._event(record)
                if event is not None:
                    self.board.swept(record.partition, record.offset, record.key, event)
        over = [
            self._place(number)
            for number, offset in _by_partition(await reader.positions()).items()
            if self.board.sweep_moved(number, offset)
        ]
        if over:
            await reader.drop(over)

    async def _drop_the_lost(self) -> None:
        """Retention overtook a sweep: who needs what is gone is told so."""
        spans: Mapping[TopicPartition, Span] = await self._log.admin.spans(self._topic)
        for number in list(self.board.partitions()):
            self.board.lost(number, spans[self._place(number)].start)


def _by_partition(
    positions: Mapping[TopicPartition, Offset],
) -> Mapping[PartitionIndex, Offset]:
    return {place.partition: offset for place, offset in positions.items()}


async def _close(reader: LogReader) -> None:
    with contextlib.suppress(LogError):
        await asyncio.shield(reader.close())
