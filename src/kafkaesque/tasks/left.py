"""Reads again what a worker has left in the log, beside its reader, which goes on meanwhile. A driver."""

from __future__ import annotations

import logging

from kafkaesque.client.ports import Assignment, Log, LogReader
from kafkaesque.model.ids import Offset, TopicPartition
from kafkaesque.tasks.rules.desk import Desk
from kafkaesque.tasks.rules.progress import Progress

logger = logging.getLogger(__name__)


class LeftReader:
    """Opens its reader when something is wanted for the first time."""

    def __init__(self, log: Log, desk: Desk) -> None:
        self._log = log
        self._desk = desk
        self._reader: LogReader | None = None
        self._searches: dict[TopicPartition, Progress] = {}

    @property
    def is_busy(self) -> bool:
        return bool(self._searches)

    async def turn(self, count_max: int, now_ms: int) -> int:
        """Begin the searches that are wanted and go on with the others; how many calls were found."""
        desk = self._desk
        wanted = {
            place: offset for place, offset in desk.wanted().items() if place not in self._searches
        }
        if not wanted and not self._searches:
            return 0
        if self._reader is None:
            self._reader = await self._log.open_reader(Assignment({}))
        reader = self._reader
        if wanted:
            await reader.add(wanted)
        for place in wanted:
            progress = desk.progress_of(place)
            if progress is not None:
                progress.seek()
                self._searches[place] = progress
        records = await reader.read(count_max, 0)
        found = sum(
            desk.take_back(record, now_ms) is not None
            for record in records
            if self._searches.get(TopicPartition(record.topic, record.partition))
            is desk.progress_of(TopicPartition(record.topic, record.partition))
        )
        await self._end_searches(reader)
        return found

    async def _end_searches(self, reader: LogReader) -> None:
        positions = await reader.positions()
        ended = []
        for place, progress in self._searches.items():
            if self._desk.progress_of(place) is not progress or not progress.is_sought:
                ended.append(place)
            elif positions.get(place, Offset(-1)) >= progress.next_offset:
                spans = await self._log.admin.spans(place.topic)
                progress.end_search(spans[place].start)
                logger.warning("%s: not all that was left was found again", place)
                ended.append(place)
        for place in ended:
            del self._searches[place]
        await reader.drop(ended)

    async def close(self) -> None:
        if self._reader is not None:
            await self._reader.close()
