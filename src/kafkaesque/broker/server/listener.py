"""The Kafka socket: accepts connections within limits, and accounts for the memory they hold."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from time import monotonic

from kafkaesque.broker.cluster.rules.dynamic_config import DynamicConfig
from kafkaesque.broker.server.connection import Connection
from kafkaesque.broker.server.dispatch import Dispatcher
from kafkaesque.broker.server.rules.incomplete_requests import IncompleteRequests
from kafkaesque.broker.server.stats import BrokerStats
from kafkaesque.model import limits
from kafkaesque.wire.frames import BufferPool

logger = logging.getLogger(__name__)

UNSENT_BYTES_MAX = 256 * limits.MIB
"""Limit for answers that wait for slow readers, over all connections. Beyond it, a Fetch answer
shrinks to its first batch."""

BACKLOG = 4096


Adopt = Callable[[asyncio.Transport, bytes, bytes], None]


async def bind(
    new_connection: Callable[[], asyncio.BaseProtocol], host: str, port: int
) -> asyncio.Server:
    """Binds the address without serving yet: a broker must know its address to join a cluster, and
    serves clients only afterwards."""
    return await asyncio.get_running_loop().create_server(
        new_connection, host, port, backlog=BACKLOG, start_serving=False
    )


class Listener:
    """Implements `connection.ConnectionHost` for every connection that it accepts."""

    __slots__ = (
        "_adopt",
        "_by_address",
        "_connections",
        "_reading",
        "_server",
        "_settings",
        "_stats",
        "dispatcher",
        "incomplete_requests",
        "pool",
        "queued_bytes",
        "request_size_bytes_max",
        "requests_in_flight_max",
        "stop_node",
        "unsent_bytes",
    )

    def __init__(
        self,
        server: asyncio.Server,
        settings: DynamicConfig,
        stats: BrokerStats,
        dispatcher: Dispatcher,
        adopt: Adopt,
        stop_node: Callable[[BaseException], None],
    ) -> None:
        """`server` is bound and makes a `Connection` of this listener for each client. `adopt` takes
        over a connection whose first request is the hello of another broker."""
        self._settings = settings
        self._stats = stats
        self._adopt = adopt
        self._server: asyncio.Server | None = server
        self.dispatcher = dispatcher
        self.stop_node = stop_node
        self._connections: set[Connection] = set()
        self._by_address: Counter[str] = Counter()
        self._reading = True
        self.request_size_bytes_max = settings.static.socket_request_max_bytes
        self.requests_in_flight_max = settings.static.max_requests_in_flight_per_connection
        self.pool = BufferPool()
        self.incomplete_requests: IncompleteRequests[Connection] = IncompleteRequests()
        self.queued_bytes = 0
        self.unsent_bytes = 0

    async def serve(self) -> None:
        if self._server is not None:
            await self._server.start_serving()

    async def close(self, patience_seconds: float) -> None:
        """Stops accepting connections, waits a while for requests in progress, then closes all."""
        self._stop_accepting()
        deadline = monotonic() + patience_seconds
        # Requests in progress are finished, but no further request is read: a consumer would only
        # start its next long poll.
        self._set_reading(False)
        for connection in tuple(self._connections):
            if connection.is_idle:
                connection.close()
        while self._connections and monotonic() < deadline:
            await asyncio.sleep(0.01)
            for connection in tuple(self._connections):
                if connection.is_idle:
                    connection.close()
        for connection in tuple(self._connections):
            connection.abort()
        await asyncio.sleep(0)

    def abort(self) -> None:
        """Closes everything at once, like a killed process."""
        self._stop_accepting()
        for connection in tuple(self._connections):
            connection.abort()

    def _stop_accepting(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    def close_idle(self) -> None:
        """Closes connections that were idle for longer than connections.max.idle.ms."""
        limit = monotonic() - self._settings.current.connections_max_idle_ms / 1000
        for connection in tuple(self._connections):
            if connection.last_received < limit and connection.is_idle:
                connection.close()
            elif connection.last_received < limit:
                # Silent but with requests in progress: a long poll that must have ended long ago,
                # or a client that reads nothing. Both are gone.
                connection.abort()

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    def unsent_room_bytes(self) -> int:
        return max(0, UNSENT_BYTES_MAX - self.unsent_bytes)

    # -- ConnectionHost -------------------------------------------------------------------------

    def accept(self, connection: Connection, address: str) -> str | None:
        config = self._settings.current
        if len(self._connections) >= config.max_connections:
            self._stats.connections_refused_total += 1
            return f"max.connections={config.max_connections} reached"
        if self._by_address[address] >= config.max_connections_per_ip:
            self._stats.connections_refused_total += 1
            return f"max.connections.per.ip={config.max_connections_per_ip} reached"
        self._stats.connections_accepted_total += 1
        self._by_address[address] += 1
        self._connections.add(connection)
        if not self._reading:
            connection.hold(True)
        return None

    def lost(self, connection: Connection, address: str) -> None:
        self.incomplete_requests.forget(connection)
        if connection not in self._connections:
            return
        self._connections.discard(connection)
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]

    def buffered(self, difference_bytes: int) -> None:
        self.queued_bytes += difference_bytes
        limit = self._settings.current.queued_max_request_bytes
        if self._reading and self.queued_bytes > limit:
            self._set_reading(False)
        elif not self._reading and self._server is not None and self.queued_bytes <= limit // 2:
            self._set_reading(True)

    def incomplete(self, connection: Connection, size_bytes: int, *, is_new: bool) -> None:
        requests, now = self.incomplete_requests, connection.last_received
        if not size_bytes:
            requests.forget(connection)
            return
        requests.note(connection, size_bytes, now, is_new=is_new)
        # A single request of the maximum size is always allowed.
        limit_bytes = max(
            self._settings.current.queued_max_request_bytes, self.request_size_bytes_max
        )
        if requests.size_bytes > limit_bytes:
            for costly, held_bytes, seconds in requests.take_costliest(limit_bytes, now):
                self._stats.connections_refused_total += 1
                costly.evict(
                    f"incomplete requests hold more than {limit_bytes} bytes "
                    f"(queued.max.request.bytes), its own {held_bytes} since {seconds:.1f} s"
                )

    def _set_reading(self, enabled: bool) -> None:
        self._reading = enabled
        for connection in self._connections:
            connection.hold(not enabled)

    def unsent(self, difference_bytes: int) -> None:
        self.unsent_bytes += difference_bytes

    def protocol_error(self) -> None:
        self._stats.protocol_errors_total += 1

    def adopt(self, transport: asyncio.Transport, hello: bytes) -> None:
        self._adopt(transport, hello, b"")
