"""Which partitions this back end serves: told by the consumer group, restored, released.

A partition is served only while all of its inputs (commands and hand-overs) are this member's; what is
assigned of an incomplete one is paused. Homes that were released are kept: if the group gives one back
and nobody has written to its journal meanwhile, it need not be read again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection

from kafkaesque.chat import owners
from kafkaesque.chat.home import Home
from kafkaesque.chat.restore import read_mark, restore
from kafkaesque.client.ports import Log, LogReader, LogWriter
from kafkaesque.model.errors import InvariantBroken
from kafkaesque.model.ids import Offset, PartitionIndex, TopicPartition

logger = logging.getLogger(__name__)


class Seats:
    """See Rebalance. `reader` is set before the first read."""

    def __init__(self, log: Log, writer: LogWriter, me: str, inputs: Collection[str]) -> None:
        self._log = log
        self._writer = writer
        self._me = me
        self._inputs = tuple(inputs)
        self.reader: LogReader | None = None
        self.homes: dict[PartitionIndex, Home] = {}
        """Of the partitions that are served."""
        self._released: dict[PartitionIndex, Home] = {}
        self.joined = asyncio.Event()
        """Set once the group has answered."""
        self.restored = 0
        self.restore_ms = 0
        self.ended: list[str] = []

    def places(self, partition: PartitionIndex) -> list[TopicPartition]:
        return [TopicPartition(topic, partition) for topic in self._inputs]

    async def assigned(self, places: frozenset[TopicPartition]) -> None:
        reader = self._reader()
        mine = reader.assignment() | places
        touched = {place.partition for place in places}
        whole = {
            partition
            for partition in touched
            if all(place in mine for place in self.places(partition))
        }
        await reader.pause(place for place in places if place.partition not in whole)
        if whole:
            started_s = time.monotonic()
            await self._open(whole)
            await reader.resume(
                place
                for partition in whole
                for place in self.places(partition)
                if place not in places
            )
            self.restore_ms = int((time.monotonic() - started_s) * 1000)
            logger.info("serving %s after %d ms", sorted(self.homes), self.restore_ms)
        self.joined.set()

    async def _open(self, partitions: Collection[PartitionIndex]) -> None:
        self.ended += await owners.end_predecessors(self._log, partitions, self._me)
        await owners.take(self._writer, partitions, self._me)
        points = await self._reader().committed(
            place for partition in partitions for place in self.places(partition)
        )
        marks = dict.fromkeys(partitions, Offset(0))
        for place, point in points.items():
            marks[place.partition] = max(marks[place.partition], read_mark(point))
        missing = {}
        for partition, mark in marks.items():
            kept = self._released.pop(partition, None)
            if kept is not None and kept.journal_next == mark:
                self.homes[partition] = kept
            else:
                missing[partition] = mark
        self.restored += len(missing)
        self.homes |= await restore(self._log, missing)

    async def revoked(self, places: frozenset[TopicPartition]) -> None:
        leaving = self._close(places)
        await owners.leave(self._writer, leaving)
        mine = self._reader().assignment() - places
        await self._reader().pause(place for place in mine if place.partition in leaving)

    async def lost(self, places: frozenset[TopicPartition]) -> None:
        logger.warning("the group went on without this back end")
        self._close(places)
        self._released.clear()

    def _close(self, places: frozenset[TopicPartition]) -> list[PartitionIndex]:
        leaving = sorted({place.partition for place in places} & self.homes.keys())
        for partition in leaving:
            self._released[partition] = self.homes.pop(partition)
        return leaving

    def _reader(self) -> LogReader:
        if self.reader is None:
            raise InvariantBroken("the reader is there before the group answers")
        return self.reader
