"""Coordination of gateways in ZooKeeper: one ephemeral znode per gateway, and a znode with the routes.

Without ZooKeeper a gateway is alone and serves everybody with the default routes. kazoo calls back from its
own threads; every callback is passed to the event loop first.
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import KazooException, NodeExistsError, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

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
from kafkaesque.service.coordination import (
    CoordinationUnavailable,
    close_session,
    open_session,
)

logger = logging.getLogger(__name__)

SESSION_SECONDS = 6.0


class CoordinationFailed(LogError):
    """ZooKeeper does not answer or returns an error."""


class Coordination:
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
        self._client: KazooClient | None = None
        self._loop = asyncio.get_running_loop()
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

    # -- before the gateway serves -------------------------------------------------------------------

    async def start(self) -> None:
        if not self._connect:
            return
        try:
            self._client = await open_session(
                self._connect,
                session_seconds=SESSION_SECONDS,
                name="gateway",
                on_state=self._on_state,
            )
            await self._call(self._client.ensure_path, GATEWAYS_NODE)
            await self._call(self._client.ensure_path, ROUTES_NODE)
        except CoordinationUnavailable as error:
            raise CoordinationFailed(str(error)) from None
        except KazooTimeoutError:
            raise CoordinationFailed(f"no ZooKeeper at {self._connect}") from None
        await self._read_gateways()
        wanted, taken = self._node.slot, self._nodes.values()
        slot = free_slot(taken, wanted, REPLIES.partitions)
        self._node = GatewayNode(self._node.tcp, slot)
        await self._call(self._client.ChildrenWatch, GATEWAYS_NODE, self._on_children)
        await self._call(self._client.DataWatch, ROUTES_NODE, self._on_routes)

    async def announce(self, address: str, *, draining: bool = False) -> None:
        """Registers the address of this gateway. After a takeover it replaces the node of the old process."""
        self._node = GatewayNode(address, self._node.slot, draining)
        await self._register()

    async def stop(self, *, keep_node: bool = False) -> None:
        """`keep_node`: another process has taken the node over."""
        client, self._client = self._client, None
        if client is None:
            return
        client.remove_listener(self._on_state)
        if not keep_node:
            try:
                await asyncio.to_thread(client.delete, self._path)
            except (KazooException, KazooTimeoutError) as error:
                logger.info("node not deleted, it stays until its session ends: %r", error)
        await close_session(client)

    # -- kazoo's threads -----------------------------------------------------------------------------

    def _on_state(self, state: str) -> None:
        if state == KazooState.CONNECTED:
            self._loop.call_soon_threadsafe(self._spawn, self._register)

    def _on_children(self, _children: list[str]) -> None:
        self._loop.call_soon_threadsafe(self._spawn, self._read_gateways)

    def _on_routes(self, data: bytes | None, _stat: Any) -> None:
        self._loop.call_soon_threadsafe(self._take_routes, data or b"")

    # -- on the loop ---------------------------------------------------------------------------------

    def _spawn(self, step: Callable[[], Any]) -> None:
        if self._client is not None:
            task = self._loop.create_task(self._guard(step))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _guard(self, step: Callable[[], Any]) -> None:
        try:
            await step()
        except (LogError, KazooTimeoutError) as error:
            # The watch fires again when the connection is back.
            logger.warning("coordination: %s", error)

    def _take_routes(self, data: bytes) -> None:
        try:
            self.routes = parse_routes(data) if data else Routes()
        except BadRoutes as error:
            logger.error("invalid routes ignored: %s", error)
            return
        if self._node.tcp:
            self._spawn(self._rerouted)

    async def _read_gateways(self) -> None:
        client = self._client
        if client is None:
            return
        nodes = {}
        for name in await self._call(client.get_children, GATEWAYS_NODE):
            try:
                data, _ = await self._call(client.get, f"{GATEWAYS_NODE}/{name}")
                nodes[name] = decode_node(data)
            except CoordinationFailed as error:
                if not isinstance(error.__cause__, NoNodeError):
                    raise
            except MalformedEvent as error:
                logger.error("unreadable node: gateway=%s: %s", name, error)
        self._nodes = nodes
        self._changed()

    @property
    def _path(self) -> str:
        return f"{GATEWAYS_NODE}/{self.name}"

    async def _register(self) -> None:
        client = self._client
        if client is None or not self._node.tcp:
            return
        data = encode_value(self._node)
        try:
            await self._call(client.create, self._path, data, None, True)
        except CoordinationFailed as error:
            if not isinstance(error.__cause__, NodeExistsError):
                raise
            await self._call(self._replace, client, data)

    def _replace(self, client: KazooClient, data: bytes) -> None:
        """Replaces our own node (its data changed) or that of the process that this one took over from."""
        replacing = client.transaction()
        replacing.delete(self._path)
        replacing.create(self._path, data, None, True)
        replacing.commit()

    async def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return await asyncio.to_thread(function, *arguments)
        except KazooException as error:
            raise CoordinationFailed(f"ZooKeeper: {error!r}") from error
