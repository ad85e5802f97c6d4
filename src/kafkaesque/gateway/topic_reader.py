"""Reads one topic for all connections of a gateway: a live reader and a catch-up reader.

The rules are in `rules.fan_out`. Here is the I/O: after a log error both readers are opened again, every
subscriber continues from its own offset, and nothing is lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Mapping

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
from kafkaesque.gateway.counters import Counters
from kafkaesque.gateway.rules.fan_out import FanOut, Subscriber
from kafkaesque.gateway.rules.outgoing import OutgoingEvent
from kafkaesque.model.clock import Clock
from kafkaesque.model.ids import Offset, PartitionIndex, TopicPartition

logger = logging.getLogger(__name__)

READ_RECORDS = 1000
LIVE_WAIT_SECONDS = 0.1
"""Also how long a change of the assigned partitions may wait."""
CATCH_UP_WAIT_SECONDS = 0.05
RETRY_SECONDS = 0.5

EventSubscriber = Subscriber[OutgoingEvent]


class TopicReader:
    """One topic. `rooms`: its keys are rooms, which its events name."""

    def __init__(
        self,
        log: Log,
        topic: str,
        counters: Counters,
        clock: Clock,
        *,
        rooms: bool,
        linger_s: float,
    ) -> None:
        self._log = log
        self._topic = topic
        self._counters = counters
        self._clock = clock
        self._rooms = rooms
        self._linger_s = linger_s
        self._fan_out: FanOut[OutgoingEvent] | None = None
        self._prefixes: dict[PartitionIndex, str] = {}
        self._behind = asyncio.Event()
        self.task: asyncio.Task[None] | None = None
        self.partition_count = 0
        self.error: str | None = None

    @property
    def fan_out(self) -> FanOut[OutgoingEvent]:
        if self._fan_out is None:
            raise LogError(f"{self._topic} is not read yet")
        return self._fan_out

    async def start(self) -> None:
        """The topic must exist."""
        topic_id = (await self._log.admin.topic_ids([self._topic]))[self._topic]
        self.partition_count = await self._log.admin.partition_count(self._topic)
        self._fan_out = FanOut(topic_id)
        self._prefixes = {
            PartitionIndex(number): prefix_of(topic_id, PartitionIndex(number))
            for number in range(self.partition_count)
        }
        self.task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        if self.task is not None:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)

    # -- subscribers ---------------------------------------------------------------------------------

    async def join(self, subscriber: EventSubscriber) -> None:
        start_at = subscriber.start_at
        if self.fan_out.needs_end_check(subscriber) and isinstance(start_at, Position):
            spans = await self._log.admin.spans(self._topic)
            if start_at.offset >= spans[self._place(subscriber.partition)].end:
                subscriber.on_refused("the position lies beyond the end of the log")
                return
        self.fan_out.add(subscriber)
        self._behind.set()

    def leave(self, subscriber: EventSubscriber) -> None:
        self.fan_out.remove(subscriber, time.monotonic())

    def unblock(self, subscriber: EventSubscriber) -> None:
        self.fan_out.unblock(subscriber)
        self._behind.set()

    def _place(self, partition: PartitionIndex) -> TopicPartition:
        return TopicPartition(self._topic, partition)

    # -- live ----------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._read_live())
                    group.create_task(self._catch_up())
            except* LogError as errors:
                self.error = str(errors.exceptions[0])
                logger.warning("readers reopened: topic=%s: %s", self._topic, self.error)
            self.fan_out.reset_readers()
            await asyncio.sleep(RETRY_SECONDS)

    async def _read_live(self) -> None:
        reader = await self._log.open_reader(Assignment({}))
        try:
            while True:
                await self._update_assignment(reader)
                records = await reader.read(READ_RECORDS, LIVE_WAIT_SECONDS)
                # Nothing may wait from here to `live_advanced`: a catch-up compares itself with the cursor.
                for record in records:
                    self._deliver_live(record)
                self.fan_out.live_advanced(_by_partition(await reader.positions()))
        finally:
            await _close(reader)

    async def _update_assignment(self, reader: LogReader) -> None:
        """Reads the partitions that have subscribers, and no others."""
        idle = self.fan_out.close_idle(time.monotonic(), self._linger_s)
        if idle:
            await reader.drop([self._place(number) for number in idle])
        unopened = self.fan_out.unopened()
        if unopened:
            spans = await self._log.admin.spans(self._topic)
            ends = {self._place(number): spans[self._place(number)].end for number in unopened}
            await reader.add(ends)
            for number in unopened:
                self.fan_out.open(number, spans[self._place(number)])
            self.error = None
            self._behind.set()

    def _deliver_live(self, record: Received) -> None:
        key = record.key
        if key is None or not self.fan_out.has_subscribers(record.partition, key):
            return
        event = self._event(record)
        if event is not None:
            count = self.fan_out.deliver_live(record.partition, record.offset, key, event)
            if count:
                self._counters.pushed(count, self._clock.wall_ms() - record.timestamp_ms)

    def _event(self, record: Received) -> OutgoingEvent | None:
        try:
            key = record.key or b""
            room = key.decode() if self._rooms else None
            return OutgoingEvent(record, self._prefixes[record.partition], room)
        except (MalformedEvent, UnicodeDecodeError) as error:
            logger.warning("not an event: %s offset=%d: %s", record.topic, record.offset, error)
            self._counters.events_malformed += 1
            return None

    # -- catching up ---------------------------------------------------------------------------------

    async def _catch_up(self) -> None:
        reader: LogReader | None = None
        try:
            while True:
                started = self.fan_out.start_catch_ups()
                if reader is None:
                    reader = await self._log.open_reader(Assignment({}, strict=True))
                if started:
                    await reader.add({self._place(number): at for number, at in started.items()})
                if not reader.assignment():
                    self._behind.clear()
                    if not self.fan_out.needs_catch_up():
                        await self._behind.wait()
                    continue
                try:
                    await self._read_catch_up(reader)
                except OffsetGone:
                    await _close(reader)
                    reader = None
                    await self._refuse_truncated()
        finally:
            if reader is not None:
                await _close(reader)

    async def _read_catch_up(self, reader: LogReader) -> None:
        fan_out = self.fan_out
        records = await reader.read(READ_RECORDS, CATCH_UP_WAIT_SECONDS)
        for record in records:
            if record.key is not None and fan_out.catch_up_has(record.partition, record.key):
                event = self._event(record)
                if event is not None:
                    fan_out.deliver_catch_up(record.partition, record.offset, record.key, event)
        over = [
            self._place(number)
            for number, offset in _by_partition(await reader.positions()).items()
            if fan_out.catch_up_advanced(number, offset)
        ]
        if over:
            await reader.drop(over)

    async def _refuse_truncated(self) -> None:
        """Retention overtook a catch-up: subscribers that need the deleted records are refused."""
        spans: Mapping[TopicPartition, Span] = await self._log.admin.spans(self._topic)
        for number in list(self.fan_out.partitions()):
            self.fan_out.truncated(number, spans[self._place(number)].start)


def _by_partition(
    positions: Mapping[TopicPartition, Offset],
) -> Mapping[PartitionIndex, Offset]:
    return {place.partition: offset for place, offset in positions.items()}


async def _close(reader: LogReader) -> None:
    with contextlib.suppress(LogError):
        await asyncio.shield(reader.close())
