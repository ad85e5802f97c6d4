"""Which gateways are alive, by their ephemeral znodes. Users of a dead gateway are not connected.

Without ZooKeeper, every gateway named in a presence record is assumed to be alive. kazoo runs its
callbacks on its own threads; each does one assignment, so no lock is needed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from kazoo.client import KazooClient

from kafkaesque.client.ports import LogUnavailable
from kafkaesque.events.gateway import GATEWAYS_NODE
from kafkaesque.service.coordination import (
    CoordinationUnavailable,
    close_session,
    open_session,
)

SESSION_SECONDS = 6.0


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
        try:
            self._client = await open_session(
                self._connect, session_seconds=SESSION_SECONDS, name="chat"
            )
        except CoordinationUnavailable as error:
            raise LogUnavailable(str(error)) from None
        await asyncio.to_thread(self._client.ensure_path, GATEWAYS_NODE)
        await asyncio.to_thread(self._client.ChildrenWatch, GATEWAYS_NODE, self._changed)

    def _changed(self, children: Sequence[str]) -> None:
        self.names = frozenset(children)

    async def stop(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await close_session(client)
