"""Tasks beside a database: an outbox to enqueue with the data, an inbox to have an effect once.

Both are one table in the database of the application and work inside its own transactions, through any
DB-API connection (sqlite3, psycopg, ...). `Relay` brings what is in the outbox to the log, each row
exactly once: the rows of its last batch are named in the log, in the transaction that wrote them, so
that a relay that was killed before it could delete them knows not to send them again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from typing import Any, Protocol

import msgspec

from kafkaesque.client.ports import Log, LogWriter, Record, WriterOptions
from kafkaesque.client.reading import read_stretch
from kafkaesque.events.tasks import RELAYS
from kafkaesque.tasks import system

BATCH_ROWS = 500
_MARKS = {"qmark": "?", "format": "%s", "pyformat": "%s"}


class Connection(Protocol):
    """As much of DB-API 2.0 as is used here."""

    def cursor(self) -> Any: ...

    def commit(self) -> None: ...


class _Statements:
    """Statements on one table. Its name is checked, so that it can stand in them."""

    def __init__(self, table: str, paramstyle: str) -> None:
        if not table.isidentifier():
            raise ValueError(f"{table!r} is no name for a table")
        if paramstyle not in _MARKS:
            raise ValueError(f"paramstyle {paramstyle!r} is none of {', '.join(_MARKS)}")
        self._table = table
        self._mark = _MARKS[paramstyle]

    def run(
        self,
        connection: Connection,
        text: str,
        values: Sequence[Any] = (),
        count_max: int = BATCH_ROWS,
    ) -> list[Any]:
        """`{table}` and `?` in `text` stand for themselves."""
        statement = text.replace("{table}", self._table).replace("?", self._mark)
        with closing(connection.cursor()) as cursor:
            cursor.execute(statement, tuple(values))
            return list(cursor.fetchmany(count_max)) if cursor.description is not None else []


class Inbox:
    """Remembers which calls have had their effect.

    with connection:                      # a transaction of the database
        if inbox.first(connection, current().id):
            ...                           # the effect, in the same transaction
    """

    def __init__(self, table: str = "tasks_inbox", *, paramstyle: str = "qmark") -> None:
        self._rows = _Statements(table, paramstyle)

    def create(self, connection: Connection) -> None:
        self._rows.run(
            connection,
            "CREATE TABLE IF NOT EXISTS {table} "
            "(id VARCHAR(600) PRIMARY KEY, done_ms BIGINT NOT NULL)",
        )

    def first(self, connection: Connection, call_id: str, now_ms: int = 0) -> bool:
        """True, and remembered with this transaction, if the call has had no effect yet.

        Of two at once, the database makes one wait at its insert, and fail when the other commits.
        """
        if self._rows.run(connection, "SELECT 1 FROM {table} WHERE id = ?", [call_id]):
            return False
        self._rows.run(connection, "INSERT INTO {table} VALUES (?, ?)", [call_id, now_ms])
        return True

    def forget(self, connection: Connection, before_ms: int) -> None:
        """Rows of calls that cannot come again: choose a time beyond every retention."""
        self._rows.run(connection, "DELETE FROM {table} WHERE done_ms < ?", [before_ms])


class _Kept(msgspec.Struct, array_like=True):
    """A record as one column."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


class Outbox:
    """Records that are to be in the log if, and only if, this transaction of the database commits.

    with connection:
        connection.execute("INSERT INTO orders ...")
        outbox.add(connection, charge.record(order_id="o-1", cents=500))
    """

    def __init__(self, table: str = "tasks_outbox", *, paramstyle: str = "qmark") -> None:
        self._rows = _Statements(table, paramstyle)

    def create(self, connection: Connection) -> None:
        self._rows.run(
            connection,
            "CREATE TABLE IF NOT EXISTS {table} (id VARCHAR(64) PRIMARY KEY, record TEXT NOT NULL)",
        )

    def add(self, connection: Connection, record: Record) -> None:
        kept = _Kept(record.topic, record.key, record.value, list(record.headers))
        text = msgspec.json.encode(kept).decode()
        self._rows.run(connection, "INSERT INTO {table} VALUES (?, ?)", [_new_row_id(), text])

    def read(self, connection: Connection, count_max: int) -> list[tuple[str, Record]]:
        statement = "SELECT id, record FROM {table} ORDER BY id"
        rows = self._rows.run(connection, statement, (), count_max)
        found = []
        for row_id, text in rows:
            kept = msgspec.json.decode(text, type=_Kept)
            found.append(
                (str(row_id), Record(kept.topic, kept.key, kept.value, tuple(kept.headers)))
            )
        return found

    def remove(self, connection: Connection, ids: Iterable[str]) -> None:
        for one in ids:
            self._rows.run(connection, "DELETE FROM {table} WHERE id = ?", [one])
        connection.commit()


def _new_row_id() -> str:
    """Rows of one process sort as they were added."""
    return f"{time.time_ns():020d}-{system.new_span_id()}"


class Relay:
    """Brings the rows of one outbox to the log. One at a time under each name: a second one of the same
    name fences the first."""

    def __init__(
        self, name: str, outbox: Outbox, connect: Callable[[], Connection], log: Log
    ) -> None:
        self._name = name
        self._outbox = outbox
        self._connect = connect
        self._log = log
        self._writer: LogWriter | None = None
        self._connection: Connection | None = None
        self.sent = 0

    async def open(self) -> None:
        await self._log.admin.ensure_topics([RELAYS])
        options = WriterOptions(transactional_id=f"tasks.relay.{self._name}")
        self._writer = await self._log.open_writer(options)
        connection = self._connection = self._connect()
        self._outbox.create(connection)
        connection.commit()
        # After the writer is open: nobody else's batch can come after what is read here.
        self._outbox.remove(connection, await self._last_batch())

    async def _last_batch(self) -> list[str]:
        last: list[str] = []
        async for batch in read_stretch(self._log, await self._log.admin.spans(RELAYS.name)):
            for record in batch:
                if record.key == self._name.encode() and record.value is not None:
                    last = msgspec.json.decode(record.value, type=list[str])
        return last

    async def turn(self) -> int:
        """Bring one batch over; how many rows that were."""
        writer, connection = self._writer, self._connection
        if writer is None or connection is None:
            return 0
        rows = self._outbox.read(connection, BATCH_ROWS)
        if not rows:
            return 0
        ids = [row_id for row_id, _ in rows]
        async with writer.transaction():
            named = Record(RELAYS.name, self._name.encode(), msgspec.json.encode(ids))
            await writer.send([*(record for _, record in rows), named])
        self._outbox.remove(connection, ids)
        self.sent += len(rows)
        return len(rows)

    async def run(self, stopping: asyncio.Event, poll_s: float = 0.2) -> None:
        while not stopping.is_set():
            if await self.turn() == 0:
                try:
                    await asyncio.wait_for(stopping.wait(), poll_s)
                except TimeoutError:
                    continue

    async def close(self) -> None:
        if self._writer is not None:
            await self._writer.close()
