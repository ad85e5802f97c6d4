"""Tasks with a database: a transactional outbox for sending, an inbox for effects that happen once.

Each is a table in the application's database and works inside its transactions, through any DB-API
connection (sqlite3, psycopg, ...). `Relay` moves the rows of the outbox to the log, each exactly once: the
transaction that writes a batch also writes the ids of its rows to the log, so a relay that was killed before
it could delete the rows does not send them again.
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
    """The part of DB-API 2.0 that is used here."""

    def cursor(self) -> Any: ...

    def commit(self) -> None: ...


class _Statements:
    """Statements on one table. Its name is validated, so it can be part of the SQL text."""

    def __init__(self, table: str, paramstyle: str) -> None:
        if not table.isidentifier():
            raise ValueError(f"{table!r} cannot be the name of a table")
        if paramstyle not in _MARKS:
            raise ValueError(f"paramstyle {paramstyle!r} is not one of {', '.join(_MARKS)}")
        self._table = table
        self._mark = _MARKS[paramstyle]

    def run(
        self,
        connection: Connection,
        text: str,
        values: Sequence[Any] = (),
        count_max: int = BATCH_ROWS,
    ) -> list[Any]:
        """`{table}` and `?` in `text` are placeholders."""
        statement = text.replace("{table}", self._table).replace("?", self._mark)
        with closing(connection.cursor()) as cursor:
            cursor.execute(statement, tuple(values))
            return list(cursor.fetchmany(count_max)) if cursor.description is not None else []


class Inbox:
    """Records which calls have had their effect.

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
        """Returns True, and records the call in this transaction, if the call has had no effect yet.

        If two transactions do this at once, the insert of one waits, and fails when the other commits.
        """
        if self._rows.run(connection, "SELECT 1 FROM {table} WHERE id = ?", [call_id]):
            return False
        self._rows.run(connection, "INSERT INTO {table} VALUES (?, ?)", [call_id, now_ms])
        return True

    def forget(self, connection: Connection, before_ms: int) -> None:
        """Deletes rows of calls that cannot run again: choose a time before every retention."""
        self._rows.run(connection, "DELETE FROM {table} WHERE done_ms < ?", [before_ms])


class _StoredRecord(msgspec.Struct, array_like=True):
    """A record as the value of one column."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


class Outbox:
    """Records that reach the log if and only if the database transaction commits.

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
        kept = _StoredRecord(record.topic, record.key, record.value, list(record.headers))
        text = msgspec.json.encode(kept).decode()
        self._rows.run(connection, "INSERT INTO {table} VALUES (?, ?)", [_new_row_id(), text])

    def read(self, connection: Connection, count_max: int) -> list[tuple[str, Record]]:
        statement = "SELECT id, record FROM {table} ORDER BY id"
        rows = self._rows.run(connection, statement, (), count_max)
        found = []
        for row_id, text in rows:
            kept = msgspec.json.decode(text, type=_StoredRecord)
            found.append(
                (str(row_id), Record(kept.topic, kept.key, kept.value, tuple(kept.headers)))
            )
        return found

    def remove(self, connection: Connection, ids: Iterable[str]) -> None:
        for one in ids:
            self._rows.run(connection, "DELETE FROM {table} WHERE id = ?", [one])
        connection.commit()


def _new_row_id() -> str:
    """Ids of one process sort in the order in which rows were added."""
    return f"{time.time_ns():020d}-{system.new_span_id()}"


class Relay:
    """Moves the rows of one outbox to the log. A second relay of the same name fences the first."""

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
        # The open writer has fenced every other relay, so no batch can follow the one read here.
        self._outbox.remove(connection, await self._last_batch())

    async def _last_batch(self) -> list[str]:
        last: list[str] = []
        async for batch in read_stretch(self._log, await self._log.admin.spans(RELAYS.name)):
            for record in batch:
                if record.key == self._name.encode() and record.value is not None:
                    last = msgspec.json.decode(record.value, type=list[str])
        return last

    async def turn(self) -> int:
        """Moves one batch. Returns the number of its rows."""
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
