"""Coordination of gateways in ZooKeeper: one ephemeral znode per gateway, and a znode with the routes.

Without ZooKeeper a gateway is alone and serves everybody with the default routes.
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import Awaitable, Callable, Mapping

from kafkaesque.client.ports import LogError
from kafkaesque.events.envelope import MalformedEvent
from kafkaesque.events.gateway import (
    GATEWAYS_NODE,
    REPLIES,
    ROUTES_NODE,
    GatewayNode,
    decode_node,
    encode_value,
)
from kafkaesque.gateway.rules.routes import BadRoutes, Routes, parse_routes
from kafkaesque.gateway.rules.targets import free_slot, targets_of
from kafkaesque.model.ids import PartitionIndex
from kafkaesque.service.coordination import CoordinationSession, CoordinationSessionError

logger = logging.getLogger(__name__)

SESSION_SECONDS = 6.0


class CoordinationFailed(LogError):
    """ZooKeeper does not answer or returns an error."""


class GatewayCoordination:
    """The other gateways and the routes. On the event loop, `changed` is called when gateways joined or
    left, `rerouted` when the routes changed."""

    def __init__(
        self,
        name: str,
        connect: str,
        changed: Callable[[], None],
        rerouted: Callable[[], Awaitable[None]],
    ) -> None:
        self.name = name
        self._connect = connect
        self._changed = changed
        self._rerouted = rerouted
        self._session: CoordinationSession | None = None
        self._reading = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._node = GatewayNode("", zlib.crc32(name.encode()) % REPLIES.partitions)
        self._nodes: Mapping[str, GatewayNode] = {}
        self.routes = Routes()

    @property
    def slot(self) -> PartitionIndex:
        """The partition of gw.reply that this gateway reads."""
        return PartitionIndex(self._node.slot)

    @property
    def gateways(self) -> Mapping[str, GatewayNode]:
        """The live gateways, this one included."""
        return {**self._nodes, self.name: self._node}

    def targets(self, partition: PartitionIndex, *, without_self: bool) -> tuple[str, ...]:
        excluded = (self.name,) if without_self else ()
        return targets_of(partition, self.gateways, without=excluded)

    async def start(self) -> None:
        """Reads the other gateways and the routes, before this gateway serves."""
        if not self._connect:
            return
        try:
            session = self._session = await CoordinationSession.open(
                self._connect, session_seconds=SESSION_SECONDS, name="gateway"
            )
            await session.ensure_path(GATEWAYS_NODE)
            await session.ensure_path(ROUTES_NODE)
            await self._read_gateways()
            wanted, taken = self._node.slot, self._nodes.values()
            slot = free_slot(taken, wanted, REPLIES.partitions)
            self._node = GatewayNode(self._node.tcp, slot)
            await session.watch_children(GATEWAYS_NODE, self._children_changed)
            await session.watch_data(ROUTES_NODE, self._routes_changed)
        except CoordinationSessionError as error:
            raise CoordinationFailed(str(error)) from error

    async def announce(self, address: str, *, draining: bool = False) -> None:
        """Registers the address of this gateway. After a takeover it replaces the node of the old process."""
        self._node = GatewayNode(address, self._node.slot, draining)
        if self._session is None:
            return
        try:
            await self._session.register(f"{GATEWAYS_NODE}/{self.name}", encode_value(self._node))
        except CoordinationSessionError as error:
            raise CoordinationFailed(str(error)) from error

    async def stop(self) -> None:
        """Ends the session and with it the node, unless a process that took over has replaced it."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _children_changed(self, _names: list[str]) -> None:
        self._spawn(self._read_gateways)

    def _routes_changed(self, data: bytes) -> None:
        try:
            self.routes = parse_routes(data) if data else Routes()
        except BadRoutes as error:
            logger.error("invalid routes ignored: %s", error)
            return
        if self._node.tcp:
            self._spawn(self._rerouted)

    def _spawn(self, step: Callable[[], Awaitable[None]]) -> None:
        task = asyncio.get_running_loop().create_task(self._guard(step))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guard(self, step: Callable[[], Awaitable[None]]) -> None:
        try:
            await step()
        except (LogError, CoordinationSessionError) as error:
            # The watch fires again when the connection is back.
            logger.warning("coordination: %s", error)

    async def _read_gateways(self) -> None:
        # One at a time: an earlier read must not overwrite the result of a later one.
        async with self._reading:
            if self._session is None:
                return
            nodes = {}
            for name, data in (await self._session.children_data(GATEWAYS_NODE)).items():
                try:
                    nodes[name] = decode_node(data)
                except MalformedEvent as error:
                    logger.error("unreadable node: gateway=%s: %s", name, error)
            self._nodes = nodes
        self._changed()
