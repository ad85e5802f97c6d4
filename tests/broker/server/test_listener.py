"""The bounds that all connections share, on real sockets. The test decides what requests do."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from tests.waiting import until

from kafkaesque.broker.cluster.rules.dynamic_config import DynamicConfig
from kafkaesque.broker.server.connection import Connection
from kafkaesque.broker.server.dispatch import Begun, Dispatcher, Served
from kafkaesque.broker.server.handler import Answer
from kafkaesque.broker.server.listener import Listener, bind
from kafkaesque.broker.server.stats import BrokerStats
from kafkaesque.model.limits import KIB, MIB
from kafkaesque.model.settings import broker_config

DEADLINE_SECONDS = 60


class Requests:
    """Those that were begun, by the first byte of their body. A capital waits to be answered."""

    def __init__(self) -> None:
        self.begun: list[bytes] = []
        self.waiting: dict[bytes, asyncio.Future[None]] = {}

    def overlaps(self, frame: memoryview) -> bool:
        return False

    def serve(self, frame: memoryview, client_host: str, started: float) -> Served:
        name = bytes(frame[10:11])
        self.begun.append(name)
        if name.isupper():
            self.waiting[name] = asyncio.get_running_loop().create_future()
            return [], 0, Begun(cast(Any, None), 0, False, self._wait(name))
        return [name], 1, None

    async def _wait(self, name: bytes) -> Answer:
        await self.waiting[name]
        return None

    def finish(self, *_: object) -> tuple[list[bytes], int]:
        return [b"!"], 1


class Stage:
    def __init__(
        self, listener: Listener, stats: BrokerStats, requests: Requests, address: tuple[str, int]
    ) -> None:
        self.listener = listener
        self.stats = stats
        self.requests = requests
        self._address = address
        self._writers: list[asyncio.StreamWriter] = []

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(*self._address)
        self._writers.append(writer)
        return reader, writer

    async def ask(self, name: bytes) -> bytes:
        """Returns the answer over a new connection."""
        reader, writer = await self.connect()
        writer.write(framed(name))
        async with asyncio.timeout(DEADLINE_SECONDS):
            answer = await reader.read(1)
        writer.close()
        return answer

    def close(self) -> None:
        for writer in self._writers:
            writer.transport.abort()


@asynccontextmanager
async def serving(**settings: int) -> AsyncIterator[Stage]:
    """A listener with settings, dots as underscores."""
    values = {name.replace("_", "."): str(value) for name, value in settings.items()}
    config = broker_config({"node.id": "1", "log.dirs": "unused", **values})
    stats = BrokerStats()
    server = await bind(lambda: Connection(listener), "127.0.0.1", 0)
    address = server.sockets[0].getsockname()
    requests = Requests()
    dispatcher = cast(Dispatcher, requests)
    settings = DynamicConfig(config)
    listener = Listener(server, settings, stats, dispatcher, cast(Any, None), lambda error: None)
    await listener.serve()
    stage = Stage(listener, stats, requests, address)
    try:
        yield stage
    finally:
        stage.close()
        await listener.close(0)


def framed(name: bytes, size_bytes: int = 11) -> bytes:
    return size_bytes.to_bytes(4) + (bytes(10) + name).ljust(size_bytes, b"\0")


async def is_closed(reader: asyncio.StreamReader) -> bool:
    try:
        async with asyncio.timeout(DEADLINE_SECONDS):
            return await reader.read(1) == b""
    except ConnectionResetError:
        return True


def test_one_connection_too_many_is_closed_and_the_others_stay(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def play() -> None:
        async with serving(max_connections=2) as stage:
            peers = [await stage.connect() for _ in range(2)]
            await until(lambda: stage.listener.connection_count == 2)
            refused, _ = await stage.connect()
            assert await is_closed(refused)
            assert stage.stats.connections_refused_total == 1
            for reader, writer in peers:
                writer.write(framed(b"a"))
                assert await reader.read(1) == b"a"
            peers[0][1].close()
            await until(lambda: stage.listener.connection_count == 1)
            assert await stage.ask(b"b") == b"b"

    with caplog.at_level(logging.WARNING, "kafkaesque.connection"):
        asyncio.run(play())
    assert [record.getMessage() for record in caplog.records] == [
        "refused connection from 127.0.0.1: max.connections=2 reached"
    ]


def test_too_many_bytes_of_requests_leave_further_ones_unread_until_there_is_room() -> None:
    async def play() -> None:
        async with serving(queued_max_request_bytes=MIB) as stage, serving() as other:
            for name in (b"A", b"B", b"C"):
                _, writer = await stage.connect()
                writer.write(framed(name, 400 * KIB))
                await until(lambda name=name: name in stage.requests.begun)  # type: ignore[misc]
            assert stage.listener.queued_bytes == 1200 * KIB
            reader, writer = await stage.connect()
            writer.write(framed(b"d"))
            # Both share a loop: what could be read meanwhile would have been.
            for _ in range(5):
                assert await other.ask(b"x") == b"x"
            assert b"d" not in stage.requests.begun
            stage.requests.waiting[b"A"].set_result(None)
            stage.requests.waiting[b"B"].set_result(None)
            async with asyncio.timeout(DEADLINE_SECONDS):
                assert await reader.read(1) == b"d"
            assert stage.listener.queued_bytes == 400 * KIB

    asyncio.run(play())


def test_incomplete_requests_above_the_limit_close_only_their_own_connections(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def play() -> int:
        settings = {"queued_max_request_bytes": MIB, "socket_request_max_bytes": MIB}
        async with serving(**settings) as stage:
            held = stage.listener.incomplete_requests
            good_reader, good_writer = await stage.connect()
            good_writer.write(framed(b"g", KIB)[:100])
            await until(lambda: held.size_bytes > 0)
            for _ in range(12):
                _, writer = await stage.connect()
                writer.write(framed(b"x", 500 * KIB)[: 200 * KIB])

            def only_four_are_left() -> bool:
                assert held.size_bytes <= MIB
                return stage.stats.connections_refused_total >= 8

            await until(only_four_are_left)
            good_writer.write(framed(b"g", KIB)[100:])
            async with asyncio.timeout(DEADLINE_SECONDS):
                assert await good_reader.read(1) == b"g"
            stage.close()
            await until(lambda: stage.listener.connection_count == 0)
            assert held.size_bytes == 0
            return stage.stats.connections_refused_total

    with caplog.at_level(logging.WARNING, "kafkaesque.connection"):
        closed = asyncio.run(play())
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == closed
    assert all("incomplete requests hold more than 1048576 bytes" in line for line in lines)


def test_largest_request_comes_in_even_where_it_alone_exceeds_the_bound() -> None:
    async def play() -> None:
        async with serving(queued_max_request_bytes=MIB) as stage:
            reader, writer = await stage.connect()
            writer.write(framed(b"a"))
            assert await reader.read(1) == b"a"
            writer.write(framed(b"b", 5 * MIB))
            async with asyncio.timeout(DEADLINE_SECONDS):
                assert await reader.read(1) == b"b"

    asyncio.run(play())
