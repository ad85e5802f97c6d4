"""Listeners turn records of another topic into calls, exactly once.

A listener has a plain function from a record to records (`task.record`, `task.timer`,
`app.cancel_record`). Its bridge reads the topic in its own consumer group and writes the resulting records
and the offsets of each batch in one transaction. So each record is followed once, whatever crashes, and a
failing call does not delay the records after it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kafkaesque.client.ports import (
    Log,
    LogReader,
    LogWriter,
    Received,
    Record,
    Start,
    Subscription,
    WriterOptions,
)
from kafkaesque.events.topics import TopicSpec
from kafkaesque.model.clock import Clock
from kafkaesque.model.ids import TopicPartition
from kafkaesque.tasks.rules.outcome import CallFailure, Dead, DeadReason, dead_letter

logger = logging.getLogger(__name__)

BATCH_RECORDS = 500


@dataclass(frozen=True, slots=True)
class Listener:
    """`follow` is called for each record of `topic`. If it raises, the record becomes a dead letter of
    queue `queue`."""

    name: str
    topic: TopicSpec
    follow: Callable[[Received], Iterable[Record]]
    queue: str
    start: Start = Start.BEGINNING

    def group(self, app: str) -> str:
        return f"tasks.{app}.{self.name}"


class ListenerBridge:
    """Runs one listener. Create it with `open`, then call `turn` repeatedly."""

    def __init__(
        self, listener: Listener, reader: LogReader, writer: LogWriter, clock: Clock
    ) -> None:
        self._listener = listener
        self._reader = reader
        self._writer = writer
        self._clock = clock
        self.followed = 0
        self.refused = 0

    @classmethod
    async def open(
        cls, listener: Listener, log: Log, clock: Clock, *, app: str, worker: str
    ) -> ListenerBridge:
        await log.admin.ensure_topics([listener.topic])
        group = listener.group(app)
        writer = await log.open_writer(WriterOptions(transactional_id=f"{group}@{worker}"))
        try:
            reader = await log.open_reader(
                Subscription([listener.topic.name], group, listener.start)
            )
        except BaseException:
            # The caller gets no bridge that it could close.
            await writer.close()
            raise
        return cls(listener, reader, writer, clock)

    @property
    def topic(self) -> str:
        return self._listener.topic.name

    async def next_offset(self, place: TopicPartition) -> int:
        """All records before this offset have been followed."""
        committed = await self._reader.committed([place])
        return -1 if place not in committed else committed[place].offset

    async def turn(self, wait_s: float) -> int:
        """Follows one batch. Returns the number of its records."""
        batch = await self._reader.read(BATCH_RECORDS, wait_s)
        if not batch:
            return 0
        async with self._writer.transaction():
            records = [record for one in batch for record in self._follow(one)]
            if records:
                await self._writer.send(records)
            await self._writer.send_offsets(self._reader)
        self.followed += len(batch)
        return len(batch)

    def _follow(self, record: Received) -> list[Record]:
        try:
            return list(self._listener.follow(record))
        except Exception as error:  # noqa: BLE001 - supervisor of the application's code
            # The record becomes a dead letter, and the next record is followed.
            self.refused += 1
            logger.warning("listener %s failed on %s: %s", self._listener.name, record.topic, error)
            dead = Dead(DeadReason.UNREADABLE, CallFailure.of(error))
            return [dead_letter(record, self._listener.queue, dead, 1, self._clock.wall_ms())]

    async def close(self) -> None:
        await self._reader.close()
        await self._writer.close()
