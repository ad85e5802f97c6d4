"""What stands in a log, for those who must know that all of it was read: the testers of tasks."""

from __future__ import annotations

from collections.abc import Iterable

from kafkaesque.client.ports import Assignment, Log, LogReader
from kafkaesque.model.ids import Offset, TopicPartition

READ_RECORDS = 1_000
READ_SECONDS = 0.05


class LogWatch:
    """Reads topics beside everybody else. The end of a partition says less: markers of transactions may
    stand there, which a member of a group is told nothing of."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._reader: LogReader | None = None
        self._last: dict[TopicPartition, Offset] = {}

    async def last_offsets(self, topics: Iterable[str]) -> dict[TopicPartition, Offset]:
        """For each partition that has records: the offset of the last that is there now."""
        spans = {
            place: span
            for topic in sorted(topics)
            for place, span in (await self._log.admin.spans(topic)).items()
        }
        if self._reader is None:
            self._reader = await self._log.open_reader(Assignment({}))
        reader = self._reader
        new = {place: span.start for place, span in spans.items()}
        await reader.add({place: new[place] for place in new.keys() - reader.assignment()})
        while True:
            positions = await reader.positions()
            if all(positions[place] >= span.end for place, span in spans.items()):
                return dict(self._last)
            for record in await reader.read(READ_RECORDS, READ_SECONDS):
                self._last[TopicPartition(record.topic, record.partition)] = record.offset

    async def close(self) -> None:
        if self._reader is not None:
            await self._reader.close()
