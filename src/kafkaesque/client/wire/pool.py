"""Connections to all brokers of a cluster: found by bootstrap, followed as brokers come and go."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from kafkaesque.client.wire.asyncio_connection import AsyncConnection
from kafkaesque.client.wire.errors import ConnectionLost
from kafkaesque.client.wire.security import PLAINTEXT, Security
from kafkaesque.model.address import Address


class ConnectionPool:
    """At most one connection to each broker. A broken one is replaced when it is next needed."""

    def __init__(
        self,
        bootstrap: Sequence[Address],
        security: Security = PLAINTEXT,
        *,
        client_id: str = "kafkaesque",
    ) -> None:
        """Raises InvalidSecurity if a TLS file cannot be used."""
        self._bootstrap = tuple(bootstrap)
        self._tls = security.tls_context()
        self._credentials = security.credentials
        self._client_id = client_id
        self._brokers: dict[int, Address] = {}
        self._connections: dict[Address, AsyncConnection] = {}
        self._locks: dict[Address, asyncio.Lock] = {}

    def set_brokers(self, brokers: Mapping[int, Address]) -> None:
        """The brokers that are up, by id. Connections to other addresses are closed."""
        self._brokers = dict(brokers)
        kept = {*self._brokers.values(), *self._bootstrap}
        for address in [address for address in self._connections if address not in kept]:
            self._connections.pop(address).close()
            self._locks.pop(address, None)

    async def any(self) -> AsyncConnection:
        """An open connection to any broker, or a new one to the first that answers."""
        for connection in self._connections.values():
            if connection.is_open:
                return connection
        return await self._first((*self._brokers.values(), *self._bootstrap))

    async def node(self, node_id: int) -> AsyncConnection:
        """Raises ConnectionLost, also if no such broker is known."""
        address = self._brokers.get(node_id)
        if address is None:
            raise ConnectionLost(f"broker {node_id} is not in the cluster's metadata")
        return await self._connection(address)

    async def _first(self, addresses: Iterable[Address]) -> AsyncConnection:
        reasons = []
        for address in dict.fromkeys(addresses):
            try:
                return await self._connection(address)
            except ConnectionLost as error:
                reasons.append(str(error))
        raise ConnectionLost("; ".join(reasons))

    async def _connection(self, address: Address) -> AsyncConnection:
        lock = self._locks.setdefault(address, asyncio.Lock())
        async with lock:
            connection = self._connections.get(address)
            if connection is None or not connection.is_open:
                connection = await AsyncConnection.open(
                    address,
                    tls=self._tls,
                    credentials=self._credentials,
                    client_id=self._client_id,
                )
                self._connections[address] = connection
            return connection

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
