"""Which gateways are alive, by their ephemeral znodes. Users of a dead gateway are not connected.

Without ZooKeeper, every gateway named in a presence record is assumed to be alive. kazoo runs its
callbacks on its own threads; each does one assignment, so no lock is needed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError

from kafkaesque.client.ports import LogUnavailable
from kafkaesque.events.gateway import GATEWAYS_NODE

SESSION_SECONDS = 6.0
CONNECT_SECONDS_MAX = 15.0


class GatewayLiveness:
    """Watches the gateways' znodes. `names` is None until the first answer."""

    def __init__(self, connect: str) -> None:
        self._connect = connect
        self._client: KazooClient | None = None
        self.names: frozenset[str] | None = None

    def is_alive(self, gateway: str) -> bool:
        return self.names is None or gateway in self.names

    async def start(self) -> None:
        """Raises LogUnavailable if ZooKeeper does not answer: presence would be silently wrong."""
        if not self._connect:
            return
        self._client = KazooClient(
            hosts=self._connect, timeout=SESSION_SECONDS, logger=logging.getLogger("kazoo.chat")
        )
        try:
            await asyncio.to_thread(self._client.start, CONNECT_SECONDS_MAX)
        except KazooTimeoutError:
            raise LogUnavailable(f"no ZooKeeper at {self._connect}") from None
        await asyncio.to_thread(self._client.ensure_path, GATEWAYS_NODE)
        await asyncio.to_thread(self._client.ChildrenWatch, GATEWAYS_NODE, self._changed)

    def _changed(self, children: Sequence[str]) -> None:
        self.names = frozenset(children)

    async def stop(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await asyncio.to_thread(client.stop)
            await asyncio.to_thread(client.close)
