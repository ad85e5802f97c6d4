"""Brokers reduced to their links: a Kafka port that accepts only hellos, and an inbox that
records."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable, Coroutine
from math import inf
from random import Random
from typing import Any, TypeVar, cast

import uvloop

from kafkaesque.broker.raft.messages import Message
from kafkaesque.broker.replication.dialling import PeerAddress
from kafkaesque.broker.replication.link import LinkConfig
from kafkaesque.broker.replication.links import Links
from kafkaesque.broker.replication.rules.peer_hello import (
    HELLO_BYTES_MAX,
    PeerIdentity,
    is_peer_hello,
)
from kafkaesque.model.clock import Clock
from kafkaesque.model.ids import GroupId, NodeId
from kafkaesque.service.clock import SystemClock
from kafkaesque.wire.frames import FrameReader

T = TypeVar("T")

QUICK = LinkConfig(
    pulse_seconds=0.01,
    silence_seconds=0.2,
    lease_margin_seconds=0.01,
    redial_seconds_min=0.005,
    redial_seconds_max=0.05,
)
PATIENCE_SECONDS = 5.0
"""Timeout for events that must happen."""

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


def run(kind: str, main: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=LOOPS[kind]) as runner:
        return runner.run(asyncio.wait_for(main, 3 * PATIENCE_SECONDS))


class Inbox:
    """Records messages and events, and lets a test wait for them."""

    def __init__(self) -> None:
        self.messages: list[tuple[GroupId, Message]] = []
        self.posts: list[tuple[NodeId, int, bytes]] = []
        self.calls: list[tuple[NodeId, int, bytes]] = []
        self.events: list[tuple[str, NodeId]] = []
        self.answer: Callable[[NodeId, int, bytes], bytes | Awaitable[bytes]] = (
            lambda node, kind, body: body[::-1]
        )
        self.failures: list[BaseException] = []
        self._changed = asyncio.Event()

    def raft_message(self, group: GroupId, message: Message) -> None:
        self.messages.append((group, message))
        self._changed.set()

    def call(self, node: NodeId, kind: int, body: bytes) -> bytes | Awaitable[bytes]:
        self.calls.append((node, kind, body))
        self._changed.set()
        return self.answer(node, kind, body)

    def post(self, node: NodeId, kind: int, body: bytes) -> None:
        self.posts.append((node, kind, body))
        self._changed.set()

    def reachable(self, node: NodeId) -> None:
        self._event("reachable", node)

    def unreachable(self, node: NodeId) -> None:
        self._event("unreachable", node)

    def dropped(self, node: NodeId) -> None:
        self._event("dropped", node)

    def heartbeats_since(self) -> float:
        return inf

    def failed(self, error: BaseException) -> None:
        self.failures.append(error)
        self._changed.set()

    def changed(self) -> None:
        self._changed.set()

    def _event(self, name: str, node: NodeId) -> None:
        self.events.append((name, node))
        self._changed.set()

    async def until(self, is_so: Callable[[], object]) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not is_so():
                self._changed.clear()
                await self._changed.wait()


class KafkaPort(asyncio.BufferedProtocol):
    """Handles a hello as `broker.connection` does."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._frames = FrameReader(HELLO_BYTES_MAX)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # (uvloop has transports of its own family.)
        self._transport = cast(asyncio.Transport, transport)
        if self._broker.is_stopped:
            self._transport.abort()
            return
        self._broker.connections.append(self._transport)
        self._broker.inbox.changed()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._frames.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        frames = self._frames.buffer_updated(nbytes)
        if frames:
            assert is_peer_hello(frames[0])
            rest = b"".join(struct.pack(">I", len(frame)) + frame for frame in frames[1:])
            self._broker.links.adopt(self._transport, frames[0], rest)


class Broker:
    """Links with a port of their own."""

    def __init__(
        self,
        me: PeerIdentity,
        config: LinkConfig = QUICK,
        seed: int = 0,
        clock: Clock | None = None,
    ) -> None:
        self.me = me
        self.node = me.node_id
        self.inbox = Inbox()
        self.connections: list[asyncio.Transport] = []
        """The accepted connections."""
        self.is_stopped = False
        self.links = Links(
            me,
            asyncio.get_running_loop(),
            self.inbox,
            clock or SystemClock(),
            fail=self.inbox.failed,
            config=config,
            random=Random(seed),
        )
        self._server: asyncio.Server | None = None
        self.address = PeerAddress("127.0.0.1", 0)

    async def serve(self, port: int = 0) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: KafkaPort(self), "127.0.0.1", port)
        self.address = PeerAddress(*self._server.sockets[0].getsockname()[:2])

    async def stop(self) -> None:
        self.is_stopped = True
        if self._server is not None:
            self._server.close()
        await self.links.close()
        for transport in self.connections:
            transport.abort()
        # Accept, connection_made and connection_lost take one turn of the loop each.
        for _ in range(3):
            await asyncio.sleep(0)


def identity(
    node: int, *, incarnation: int = 1, generation: int = 0, cluster: str = "c"
) -> PeerIdentity:
    return PeerIdentity(NodeId(node), generation, cluster, incarnation)


class Group:
    """Brokers that are peers of each other. Stops them at the end."""

    def __init__(
        self, *identities: PeerIdentity, config: LinkConfig = QUICK, clock: Clock | None = None
    ) -> None:
        self._identities = identities
        self._config = config
        self._clock = clock
        self.brokers: list[Broker] = []

    async def __aenter__(self) -> Group:
        for number, me in enumerate(self._identities):
            await self.add(me, seed=number)
        return self

    async def add(self, me: PeerIdentity, *, port: int = 0, seed: int = 0) -> Broker:
        broker = Broker(me, self._config, seed, self._clock)
        await broker.serve(port)
        self.brokers.append(broker)
        return broker

    async def __aexit__(self, *_: object) -> None:
        for broker in self.brokers:
            await broker.stop()

    def introduce_all(self) -> None:
        peers = {broker.node: broker.address for broker in self.brokers}
        for broker in self.brokers:
            broker.links.set_peers(peers)

    async def linked(self) -> None:
        """Wait until every broker has a link to every other."""
        self.introduce_all()
        for broker in self.brokers:
            others = [other.node for other in self.brokers if other is not broker]
            await broker.inbox.until(
                lambda links=broker.links, others=others: all(map(links.is_up, others))
            )
