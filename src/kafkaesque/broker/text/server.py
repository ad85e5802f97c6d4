"""The listener of the text protocol; also serves the text clients of other brokers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from kafkaesque.broker.cluster.cluster import Cluster
from kafkaesque.broker.text.connection import Sleep, TextConnection
from kafkaesque.broker.text.requests import SERVE, Requests
from kafkaesque.broker.text.rules.commands import LINE_BYTES_MAX
from kafkaesque.broker.text.rules.partitioning import RoundRobin
from kafkaesque.broker.text.rules.replies import error
from kafkaesque.model.clock import Clock
from kafkaesque.model.errors import ProtocolError, check
from kafkaesque.model.ids import NodeId

logger = logging.getLogger("kafkaesque.text")

CONNECTIONS_MAX: Final = 256

Serve = Callable[[bytes], Awaitable[bytes]]


class TextServer:
    """`start`, then `stop`. Other brokers may call it even without a listener here.

    `serve` answers a Kafka request on this broker.
    """

    __slots__ = ("_clock", "_requests", "_round_robin", "_serve", "_server", "_sleep", "_tasks")

    def __init__(
        self, cluster: Cluster, serve: Serve, clock: Clock, sleep: Sleep = asyncio.sleep
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._serve = serve
        self._requests = Requests(cluster, serve)
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._round_robin = RoundRobin()

    async def start(self, host: str, port: int) -> None:
        self._server = await asyncio.start_server(self._accept, host, port, limit=LINE_BYTES_MAX)

    @property
    def address(self) -> tuple[str, int]:
        check(self._server is not None and bool(self._server.sockets), "the server is not started")
        host, port = self._server.sockets[0].getsockname()[:2]  # type: ignore[union-attr]
        return host, port

    @property
    def connection_count(self) -> int:
        return len(self._tasks)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._tasks) >= CONNECTIONS_MAX:
            writer.write(f"{error('BUSY', 'too many connections')}\r\n".encode())
            writer.close()
            return
        connection = TextConnection(
            reader, writer, self._requests, self._round_robin, self._clock, self._sleep
        )
        task = asyncio.get_running_loop().create_task(connection.run())
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (failure := task.exception()) is not None:
            # Affects this client only.
            logger.error("a text connection failed", exc_info=failure)

    async def stop(self) -> None:
        """Stops accepting connections and closes all."""
        if self._server is not None:
            self._server.close()
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- peer_inbox.PeerService ------------------------------------------------------------------

    def call(self, node: NodeId, kind: int, body: bytes) -> Awaitable[bytes]:
        if kind != SERVE:
            raise ProtocolError(f"call of unknown kind {kind}")
        return self._serve(body)

    def post(self, node: NodeId, kind: int, body: bytes) -> None:
        raise ProtocolError(f"post of unknown kind {kind}")
