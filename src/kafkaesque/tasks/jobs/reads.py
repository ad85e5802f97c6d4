"""Which messages were read or deleted: a fold of `chat.events` in a file, checked before a mail is sent."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

from kafkaesque.client.ports import Assignment, Log, LogReader, LogUnavailable, Received
from kafkaesque.events.chat import CHAT, CHAT_EVENTS, MessageDeleted, MessageRead
from kafkaesque.events.envelope import EventError
from kafkaesque.model.ids import Offset, PartitionIndex, TopicPartition

KEPT_MS = 7 * 24 * 3_600_000
"""Longer than any mail is delayed."""
READ_RECORDS = 5_000
READ_SECONDS = 0.5
SILENT_READS_MAX = 60
_SCHEMA = """
CREATE TABLE IF NOT EXISTS marks (message_id TEXT PRIMARY KEY, at_ms INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS marks_by_time ON marks (at_ms);
CREATE TABLE IF NOT EXISTS places (
    topic TEXT, partition INTEGER, next INTEGER NOT NULL, PRIMARY KEY (topic, partition)
) WITHOUT ROWID;
"""


class ReadMarks:
    """Create it with `opened`. The file is a copy of the log's state and may be deleted."""

    def __init__(
        self, log: Log, reader: LogReader, database: sqlite3.Connection, topic_id: str
    ) -> None:
        self._log = log
        self._reader = reader
        self._database = database
        self._topic_id = topic_id
        self._lock = asyncio.Lock()

    @classmethod
    @asynccontextmanager
    async def opened(cls, log: Log, path: Path | None) -> AsyncIterator[ReadMarks]:
        await log.admin.ensure_topics([CHAT_EVENTS])
        topic_id = str((await log.admin.topic_ids([CHAT_EVENTS.name]))[CHAT_EVENTS.name])
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
        database = sqlite3.connect(path or ":memory:", isolation_level=None)
        try:
            database.executescript(
                "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;" + _SCHEMA
            )
            known = dict(
                database.execute(
                    "SELECT partition, next FROM places WHERE topic = ?", (topic_id,)
                ).fetchall()
            )
            spans = await log.admin.spans(CHAT_EVENTS.name)
            starts = {
                place: Offset(max(span.start, int(known.get(place.partition, 0))))
                for place, span in spans.items()
            }
            reader = await log.open_reader(Assignment(starts))
            try:
                marks = cls(log, reader, database, topic_id)
                await marks.catch_up()
                yield marks
            finally:
                await reader.close()
        finally:
            database.close()

    async def is_settled(self, message_id: str) -> bool:
        """Whether the message was read or deleted, by the current state of the log."""
        await self.catch_up()
        row = self._database.execute(
            "SELECT 1 FROM marks WHERE message_id = ?", (message_id,)
        ).fetchone()
        return row is not None

    async def catch_up(self) -> None:
        """Reads up to the current end of the log. Raises LogUnavailable if records stop arriving."""
        async with self._lock:
            spans = await self._log.admin.spans(CHAT_EVENTS.name)
            silent = 0
            while silent < SILENT_READS_MAX:
                positions = await self._reader.positions()
                if all(positions.get(place, 0) >= span.end for place, span in spans.items()):
                    return
                records = await self._reader.read(READ_RECORDS, READ_SECONDS)
                silent = 0 if records else silent + 1
                self._apply(records)
            raise LogUnavailable(f"no records from {CHAT_EVENTS.name}")

    def _apply(self, records: Iterable[Received]) -> None:
        nexts: dict[TopicPartition, int] = {}
        self._database.execute("BEGIN")
        newest_ms = 0
        for record in records:
            nexts[TopicPartition(record.topic, PartitionIndex(record.partition))] = (
                record.offset + 1
            )
            try:
                event = CHAT.decode(record.value or b"")
            except EventError:
                continue
            if isinstance(event.body, MessageRead | MessageDeleted):
                newest_ms = max(newest_ms, event.time_ms)
                self._database.execute(
                    "INSERT OR REPLACE INTO marks VALUES (?, ?)",
                    (event.body.message_id, event.time_ms),
                )
        self._database.execute("DELETE FROM marks WHERE at_ms < ?", (newest_ms - KEPT_MS,))
        self._database.executemany(
            "INSERT OR REPLACE INTO places VALUES (?, ?, ?)",
            [(self._topic_id, place.partition, offset) for place, offset in nexts.items()],
        )
        self._database.execute("COMMIT")
