"""Links to all brokers of a cluster: found by bootstrap, followed as brokers come and go."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from kafkaesque.console.cluster.link import KafkaLink, Security, Unreachable

Address = tuple[str, int]
PORT_DEFAULT: Final = 9092


def read_addresses(bootstrap: str) -> list[Address]:
    addresses = []
    for text in bootstrap.split(","):
        host, colon, port = text.strip().rpartition(":")
        addresses.append((host.strip("[]"), int(port)) if colon else (port, PORT_DEFAULT))
    return addresses


class KafkaLinks:
    """At most one link to a broker; one that broke is opened anew when it is asked for."""

    def __init__(self, bootstrap: Sequence[Address], security: Security) -> None:
        self._bootstrap = tuple(bootstrap)
        self._security = security
        self._known: dict[int, Address] = {}
        self._open: dict[Address, KafkaLink] = {}
        self._locks: dict[Address, asyncio.Lock] = {}

    def learn(self, brokers: Mapping[int, Address]) -> None:
        """Brokers that are up. Links to others are given up."""
        self._known = dict(brokers)
        kept = {*self._known.values(), *self._bootstrap}
        for address in [address for address in self._open if address not in kept]:
            self._open.pop(address).close()
            self._locks.pop(address, None)

    async def any(self) -> KafkaLink:
        """A link to whichever broker answers; one that is open already if there is one."""
        for link in self._open.values():
            if link.is_open:
                return link
        return await self._first((*self._known.values(), *self._bootstrap))

    async def node(self, node_id: int) -> KafkaLink:
        address = self._known.get(node_id)
        if address is None:
            raise Unreachable(f"broker {node_id} is not there")
        return await self._link(address)

    async def _first(self, addresses: Iterable[Address]) -> KafkaLink:
        reasons = []
        for address in dict.fromkeys(addresses):
            try:
                return await self._link(address)
            except Unreachable as error:
                reasons.append(str(error))
        raise Unreachable("; ".join(reasons))

    async def _link(self, address: Address) -> KafkaLink:
        lock = self._locks.setdefault(address, asyncio.Lock())
        async with lock:
            link = self._open.get(address)
            if link is None or not link.is_open:
                link = self._open[address] = await KafkaLink.open(*address, self._security)
            return link

    def close(self) -> None:
        for link in self._open.values():
            link.close()
        self._open.clear()
