from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable
from typing import ClassVar

import pytest
from tests.broker.coordination.cluster import EXPIRY_SLACK_S, Cluster
from tests.conformance_zookeeper.raw import Long, body, create_body

from kafkaesque.broker.coordination.config import CoordinationConfig
from kafkaesque.broker.coordination.rules.requests import read_connect
from kafkaesque.broker.coordination.rules.tree import Znode
from kafkaesque.broker.coordination.rules.vocabulary import Code
from kafkaesque.broker.coordination.server import CoordinationServer
from kafkaesque.model.errors import InvalidConfig
from kafkaesque.testing.clock import ManualClock

SLOW_TICK = CoordinationConfig(tick_interval_ms=2000)
CREATE, EXISTS, GET, SET, PING, CLOSE = 1, 3, 4, 5, 11, -11


class Peer:
    """A raw client on the test's own event loop."""

    opened: ClassVar[list[Peer]] = []

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.opened.append(self)

    @classmethod
    async def open(cls, server: CoordinationServer) -> Peer:
        return cls(*await asyncio.open_connection(*server.address))

    async def connect(
        self, timeout_ms: int = 4000, session_id: int = 0, password: bytes = bytes(16)
    ) -> tuple[int, bytes]:
        self.send(body(0, Long(0), timeout_ms, Long(session_id), password, False))
        answer = await self.frame()
        # The same layout as the request but for the zxid, which the answer does not have.
        found = read_connect(answer[:4] + bytes(8) + answer[4:])
        return found.session_id, found.password

    def send(self, data: bytes) -> None:
        self.writer.write(struct.pack(">i", len(data)) + data)

    async def ask(self, opcode: int, data: bytes = b"", xid: int = 1) -> int:
        self.send(struct.pack(">ii", xid, opcode) + data)
        return (await self.reply())[2]

    async def reply(self) -> tuple[int, int, int, bytes]:
        data = await self.frame()
        return (*struct.unpack(">iqi", data[:16]), data[16:])

    async def frame(self) -> bytes:
        (size,) = struct.unpack(">i", await self.reader.readexactly(4))
        return await self.reader.readexactly(size)

    async def is_closed(self) -> bool:
        try:
            return await asyncio.wait_for(self.reader.read(1), 5) == b""
        except ConnectionResetError:
            return True


Story = Callable[[CoordinationServer, ManualClock], Awaitable[None]]


def run(
    story: Story, config: CoordinationConfig = SLOW_TICK, log: list[bytes] | None = None
) -> list[bytes]:
    """Runs `story` on one server that begins with `log`; returns the log at its end."""

    async def main() -> list[bytes]:
        clock = ManualClock()
        cluster = Cluster(1, config, clock, log)
        await cluster.start()
        server = cluster.replicas[0].server
        await server.tick()
        try:
            await story(server, clock)
        finally:
            for peer in Peer.opened:
                peer.writer.transport.abort()
            Peer.opened.clear()
            await cluster.stop()
        assert cluster.failures == []
        return cluster.log

    return asyncio.run(main())


def test_session_expires_by_the_monotonic_clock_at_its_timeout() -> None:
    async def story(server: CoordinationServer, clock: ManualClock) -> None:
        silent, other = await Peer.open(server), await Peer.open(server)
        await silent.connect(timeout_ms=4000)
        await other.connect(timeout_ms=40_000)
        await silent.ask(CREATE, create_body("/e", flags=1))
        await server.tick()
        for _ in range(4):
            clock.advance(0.99)
            await server.tick()
        assert await other.ask(EXISTS, body("/e", False)) == Code.OK
        clock.advance(0.1 + EXPIRY_SLACK_S)
        await server.tick()
        assert await other.ask(EXISTS, body("/e", False)) == Code.NO_NODE
        assert await silent.is_closed()

    run(story)


def test_server_that_was_paused_expires_no_session_for_it() -> None:
    async def story(server: CoordinationServer, clock: ManualClock) -> None:
        client = await Peer.open(server)
        await client.connect(timeout_ms=4000)
        await server.tick()
        clock.advance(60)  # SIGSTOP, a laptop's sleep
        await server.tick()
        clock.advance(2)
        await server.tick()
        assert await client.ask(PING, xid=-2) == Code.OK

    run(story)


def test_sessions_and_their_nodes_outlive_a_restart() -> None:
    kept: list[tuple[int, bytes]] = []

    async def before(server: CoordinationServer, _: ManualClock) -> None:
        client = await Peer.open(server)
        kept.append(await client.connect())
        await client.ask(CREATE, create_body("/e", b"data", flags=1))

    async def after(server: CoordinationServer, _: ManualClock) -> None:
        client = await Peer.open(server)
        session_id, password = kept[0]
        assert await client.connect(session_id=session_id, password=password) == kept[0]
        assert await client.ask(EXISTS, body("/e", False)) == Code.OK
        assert await client.ask(CLOSE) == Code.OK
        assert server.coordinator.machine.tree.get("/e") is None

    run(after, log=run(before))


def test_connection_without_a_session_is_closed_after_a_while() -> None:
    async def story(server: CoordinationServer, clock: ManualClock) -> None:
        idle, client = await Peer.open(server), await Peer.open(server)
        await client.connect()
        clock.advance(9)
        await server.tick()
        clock.advance(2)
        await server.tick()
        assert await idle.is_closed()
        assert await client.ask(PING, xid=-2) == Code.OK

    run(story)


def test_client_that_does_not_read_is_disconnected() -> None:
    config = CoordinationConfig(max_unsent_bytes=1 << 20)

    async def story(server: CoordinationServer, _: ManualClock) -> None:
        deaf, writer = await Peer.open(server), await Peer.open(server)
        await deaf.connect()
        await writer.connect()
        deaf.reader._transport.pause_reading()  # type: ignore[attr-defined]
        deaf.send(struct.pack(">ii", 1, 106) + body("/", 1))
        name = "/" + "n" * 4000
        for number in range(4000):
            await writer.ask(CREATE if number % 2 == 0 else 2, _either(name, number))
            if len(server._connections) == 1:
                return
        raise AssertionError("the client that does not read is still connected")

    run(story, config)


def _either(name: str, number: int) -> bytes:
    return create_body(name) if number % 2 == 0 else body(name, -1)


def test_connection_with_too_many_outstanding_requests_is_not_read() -> None:
    config = CoordinationConfig(max_outstanding_requests=10)

    async def story(server: CoordinationServer, _: ManualClock) -> None:
        client = await Peer.open(server)
        await client.connect()
        for number in range(500):
            client.send(struct.pack(">ii", number, CREATE) + create_body(f"/n{number}"))
            client.send(struct.pack(">ii", number, EXISTS) + body(f"/n{number}", False))
        codes = [(await client.reply())[::2] for _ in range(1000)]
        assert codes == [(number, 0) for number in range(500) for _ in range(2)]

    run(story, config)


def test_reaping_waits_for_its_interval() -> None:
    async def story(server: CoordinationServer, clock: ManualClock) -> None:
        client = await Peer.open(server)
        await client.connect(timeout_ms=40_000)
        ttl = body("/short", b"", ((31, "world", "anyone"),), 5, Long(1000))
        assert await client.ask(21, ttl) == Code.OK
        for _ in range(30):
            clock.advance(1.9)
            assert await client.ask(PING, xid=-2) == Code.OK
            await server.tick()
        assert isinstance(server.coordinator.machine.tree.get("/short"), Znode)
        clock.advance(2.9)
        await client.ask(PING, xid=-2)
        await server.tick()
        clock.advance(1)
        await server.tick()
        assert server.coordinator.machine.tree.get("/short") is None

    run(story)


@pytest.mark.parametrize(
    "values",
    [
        {"min_session_timeout_ms": 0},
        {"min_session_timeout_ms": 5000, "max_session_timeout_ms": 4000},
        {"tick_interval_ms": 3000},
        {"max_frame_bytes": 10},
    ],
)
def test_settings_that_cannot_work_are_refused(values: dict[str, int]) -> None:
    with pytest.raises(InvalidConfig):
        CoordinationConfig(**values)  # type: ignore[arg-type]
