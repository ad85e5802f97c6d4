"""Records of another topic into calls: a listener says which, its bridge writes them exactly once.

A listener is a plain function from a record to records (`task.record`, `task.timer`,
`app.cancel_record`). Its bridge reads the topic in a group of its own and writes what follows from a
batch, and that the batch is read, in one transaction. So a call is sent once for each record, whatever
crashes, and whatever becomes of the call does not hold up the records behind it.
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
from kafkaesque.tasks.rules import outcome as reasons
from kafkaesque.tasks.rules.call import dead_letter
from kafkaesque.tasks.rules.outcome import Dead, Failure

logger = logging.getLogger(__name__)

BATCH_RECORDS = 500


@dataclass(frozen=True, slots=True)
class Listener:
    """`follow` is called for each record; what it raises makes a dead letter of queue `queue`."""

    name: str
    topic: TopicSpec
    follow: Callable[[Received], Iterable[Record]]
    queue: str
    start: Start = Start.BEGINNING

    def group(self, app: str) -> str:
        return f"tasks.{app}.{self.name}"


class Bridge:
    """One listener at work. Made by `open`; `turn` is to be called again and again."""

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
    ) -> Bridge:
        await log.admin.ensure_topics([listener.topic])
        group = listener.group(app)
        writer = await log.open_writer(WriterOptions(transactional_id=f"{group}@{worker}"))
        try:
            reader = await log.open_reader(
                Subscription([listener.topic.name], group, listener.start)
            )
        except BaseException:
            # Cancelled or refused: the caller is told, and has no bridge to close.
            await writer.close()
            raise
        return cls(listener, reader, writer, clock)

    @property
    def topic(self) -> str:
        return self._listener.topic.name

    async def next_offset(self, place: TopicPartition) -> int:
        """Whatever is before it has been followed."""
        committed = await self._reader.committed([place])
        return -1 if place not in committed else committed[place].offset

    async def turn(self, wait_s: float) -> int:
        """Bring one batch over; how many records it had."""
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
            # The record becomes a dead letter, and the next one is followed.
            self.refused += 1
            logger.warning("%s cannot follow %s: %s", self._listener.name, record.topic, error)
            dead = Dead(reasons.UNREADABLE, Failure.of(error))
            return [dead_letter(record, self._listener.queue, dead, 1, self._clock.wall_ms())]

    async def close(self) -> None:
        await self._reader.close()
        await self._writer.close()
