"""Outbox and inbox on a real SQLite file, the relay on the log in memory."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from kafkaesque.client.memory import MemoryLog
from kafkaesque.client.ports import LogUnavailable, Record
from kafkaesque.events.topics import TopicSpec
from kafkaesque.tasks.database import Inbox, Outbox, Relay

SPEC = TopicSpec("orders", 1, "", "")


def database(directory: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(directory / "shop.db")
    Outbox().create(connection)
    Inbox().create(connection)
    connection.commit()
    return connection


def test_rolled_back_rows_are_never_sent_and_others_once(tmp_path: Path) -> None:
    connection = database(tmp_path)
    with connection:
        Outbox().add(connection, Record("orders", b"k", b"kept", (("h", b"v"), ("n", None))))
    Outbox().add(connection, Record("orders", b"k", b"lost"))
    connection.rollback()

    async def test() -> None:
        log = MemoryLog()
        await log.ensure_topics([SPEC])
        relay = Relay("shop", Outbox(), lambda: connection, log)
        await relay.open()
        assert [await relay.turn(), await relay.turn()] == [1, 0]
        (record,) = log.records("orders")
        assert (record.key, record.value) == (b"k", b"kept")
        assert record.headers == (("h", b"v"), ("n", None))
        await relay.close()

    asyncio.run(test())
    connection.close()


def test_a_relay_killed_between_the_log_and_the_database_sends_nothing_twice(
    tmp_path: Path,
) -> None:
    connection = database(tmp_path)
    with connection:
        for number in range(3):
            Outbox().add(connection, Record("orders", None, str(number).encode()))

    class Forgetful(Outbox):
        def remove(self, connection: object, ids: object) -> None:
            raise KeyboardInterrupt

    async def test() -> None:
        log = MemoryLog()
        await log.ensure_topics([SPEC])
        first = Relay("shop", Outbox(), lambda: connection, log)
        await first.open()
        first._outbox = Forgetful()
        with pytest.raises(KeyboardInterrupt):
            await first.turn()
        second = Relay("shop", Outbox(), lambda: connection, log)
        await second.open()
        assert await second.turn() == 0
        assert len(log.records("orders")) == 3

    asyncio.run(test())
    connection.close()


def test_rows_stay_when_the_log_cannot_be_reached(tmp_path: Path) -> None:
    connection = database(tmp_path)
    with connection:
        Outbox().add(connection, Record("orders", None, b"1"))

    async def test() -> None:
        log = MemoryLog()
        await log.ensure_topics([SPEC])
        relay = Relay("shop", Outbox(), lambda: connection, log)
        await relay.open()
        log.failure = LogUnavailable("gone")
        with pytest.raises(LogUnavailable):
            await relay.turn()
        log.failure = None
        assert await relay.turn() == 1

    asyncio.run(test())
    connection.close()


def test_an_effect_happens_once_however_often_the_call_runs(tmp_path: Path) -> None:
    connection = database(tmp_path)
    inbox = Inbox()
    connection.execute("CREATE TABLE effects (n INTEGER)")
    for attempt in range(3):
        try:
            with connection:
                if inbox.first(connection, "call-1", now_ms=attempt):
                    connection.execute("INSERT INTO effects VALUES (1)")
                    if attempt == 0:
                        raise ZeroDivisionError  # the effect and its mark go together
        except ZeroDivisionError:
            continue
    assert connection.execute("SELECT count(*) FROM effects").fetchone() == (1,)
    inbox.forget(connection, before_ms=100)
    assert inbox.first(connection, "call-1")
    connection.rollback()
    connection.close()


@pytest.mark.parametrize("table", ["a b", "a;drop", "", "1a"])
def test_an_invalid_table_name_is_refused(table: str) -> None:
    with pytest.raises(ValueError, match="cannot be the name"):
        Inbox(table)
    with pytest.raises(ValueError, match="paramstyle"):
        Outbox(paramstyle="named")
