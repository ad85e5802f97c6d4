"""A session with the coordination service (ours or an Apache ZooKeeper): the one way services use kazoo.

kazoo blocks and calls back from its own threads. `CoordinationSession` runs its calls in threads and
passes its callbacks to the event loop. kazoo is imported late, because only processes that use
coordination need it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from kazoo.client import KazooClient

T = TypeVar("T")

logger = logging.getLogger(__name__)

CONNECT_SECONDS_MAX = 15.0
_REPLACEMENTS_MAX = 3


class CoordinationSessionError(Exception):
    """No server answered, or it answered with an error (the cause, an exception of kazoo)."""


class CoordinationSession:
    """Calls, watches and ephemeral nodes of one client. Create it with `open`, end it with `close`.

    kazoo reconnects by itself. If the server has expired the session meanwhile, it has deleted its
    ephemeral nodes, and kazoo starts a new session: `is_lost` is True from then on. Nodes of
    `register` are created again after each reconnect. Nodes of `create_ephemeral` and `acquire` are
    not, because another process may have taken over by then.
    """

    def __init__(
        self, client: KazooClient, hosts: str, on_change: Callable[[], None] | None = None
    ) -> None:
        self._client = client
        self._hosts = hosts
        self._on_change = on_change
        self._loop = asyncio.get_running_loop()
        self._registered: dict[str, bytes] = {}
        self._registering = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = False
        self.is_lost = False

    @classmethod
    async def open(
        cls,
        hosts: str,
        *,
        session_seconds: float,
        name: str,
        on_change: Callable[[], None] | None = None,
    ) -> CoordinationSession:
        """Connect to one of `hosts` (HOST:PORT,...). Raises CoordinationSessionError.

        `name` appears in kazoo's log lines. `on_change` is called when the connection is lost or
        restored, and when a node that `acquire` found taken changes.
        """
        from kazoo.client import KazooClient

        client = KazooClient(
            hosts=hosts, timeout=session_seconds, logger=logging.getLogger(f"kazoo.{name}")
        )
        session = cls(client, hosts, on_change)
        client.add_listener(session._state_changed)
        try:
            await session._run(client.start, CONNECT_SECONDS_MAX)
        except BaseException:
            await session.close()
            raise
        return session

    async def close(self) -> None:
        """End the session: the server deletes its ephemeral nodes. No callback runs after this call."""
        self._closing = True
        for task in self._tasks:
            task.cancel()
        self._client.remove_listener(self._state_changed)
        await asyncio.to_thread(self._client.stop)
        await asyncio.to_thread(self._client.close)

    # -- calls -----------------------------------------------------------------------------------------

    async def ensure_path(self, path: str) -> None:
        """Create `path` and its parents if they are missing."""
        await self._run(self._client.ensure_path, path)

    async def children(self, path: str) -> list[str]:
        """The names of the children, unsorted. Waits while the connection is lost."""
        names = await self._run(self._client.retry, self._client.get_children, path)
        return [str(name) for name in names]

    async def children_data(self, path: str) -> dict[str, bytes]:
        """The data of each child by name. Children that are deleted meanwhile are missing."""
        return await self._run(self._children_data, path)

    def _children_data(self, path: str) -> dict[str, bytes]:
        from kazoo.exceptions import NoNodeError

        found: dict[str, bytes] = {}
        for name in self._client.get_children(path):
            try:
                found[str(name)] = self._client.get(f"{path}/{name}")[0] or b""
            except NoNodeError:
                continue
        return found

    async def _run(self, function: Callable[..., T], *arguments: Any) -> T:
        from kazoo.exceptions import KazooException
        from kazoo.handlers.threading import KazooTimeoutError

        try:
            return await asyncio.to_thread(function, *arguments)
        except KazooTimeoutError as error:
            raise CoordinationSessionError(f"no ZooKeeper at {self._hosts}") from error
        except KazooException as error:
            raise CoordinationSessionError(f"ZooKeeper at {self._hosts}: {error!r}") from error

    # -- watches ---------------------------------------------------------------------------------------

    async def watch_children(self, path: str, callback: Callable[[list[str]], None]) -> None:
        """Call `callback` with the names of the children: once before this returns, then after each change."""

        def changed(names: list[str]) -> None:
            self._post(callback, names)

        await self._run(self._client.ChildrenWatch, path, changed)

    async def watch_data(self, path: str, callback: Callable[[bytes], None]) -> None:
        """Call `callback` with the data of the node: once before this returns, then after each change."""

        def changed(data: bytes | None, _stat: object) -> None:
            self._post(callback, data or b"")

        await self._run(self._client.DataWatch, path, changed)

    def _post(self, callback: Callable[..., None], *arguments: Any) -> None:
        """Run `callback` on the event loop. The threads of kazoo call this."""

        def run() -> None:
            if not self._closing:
                callback(*arguments)

        self._loop.call_soon_threadsafe(run)

    # -- the state of the connection -------------------------------------------------------------------

    def _state_changed(self, state: str) -> None:
        from kazoo.client import KazooState

        if state == KazooState.LOST:
            self.is_lost = True
        if state == KazooState.CONNECTED:
            self._post(self._restore)
        self._node_changed(None)

    def _node_changed(self, _event: object) -> None:
        # One bound method for all watches: kazoo keeps equal callbacks of a node only once.
        if self._on_change is not None:
            self._post(self._on_change)

    def _restore(self) -> None:
        task = self._loop.create_task(self._register_again())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _register_again(self) -> None:
        for path in list(self._registered):
            try:
                await self._register(path)
            except CoordinationSessionError as error:
                # The next reconnect tries again.
                logger.warning("node not registered again: path=%s: %s", path, error)

    # -- ephemeral nodes -------------------------------------------------------------------------------

    async def register(self, path: str, data: bytes) -> None:
        """Create the ephemeral node `path`, now and after each reconnect.

        Replaces a node that exists: our own with older data, or that of a previous process of the same
        name. It is replaced, not set, because watches of children do not fire when data changes.
        """
        self._registered[path] = data
        await self._register(path)

    async def _register(self, path: str) -> None:
        async with self._registering:
            await self.create_ephemeral(path, self._registered[path])

    async def create_ephemeral(self, path: str, data: bytes = b"") -> None:
        """Create the ephemeral node `path` once, with its parents. Replaces a node that exists."""
        await self._run(self._create_ephemeral, path, data)

    def _create_ephemeral(self, path: str, data: bytes) -> None:
        from kazoo.exceptions import NodeExistsError, NoNodeError

        for _ in range(_REPLACEMENTS_MAX):
            try:
                self._client.create(path, data, ephemeral=True, makepath=True)
                return
            except NodeExistsError:
                replacing = self._client.transaction()
                replacing.delete(path)
                replacing.create(path, data, ephemeral=True)
                errors = [one for one in replacing.commit() if isinstance(one, Exception)]
            if not errors:
                return
            if not any(isinstance(error, NoNodeError) for error in errors):
                raise errors[0]
            # The session of the other process ended between the two requests.
        raise NodeExistsError(path)

    async def acquire(self, path: str, owner: str) -> bool:
        """Create the ephemeral node `path` with the name of its owner; True if this session holds it.

        False if another owner holds it: `on_change` is called when the node changes. Waits while the
        connection is lost.
        """
        return await self._run(self._client.retry, self._acquire, path, owner.encode())

    def _acquire(self, path: str, owner: bytes) -> bool:
        from kazoo.exceptions import NodeExistsError, NoNodeError

        for _ in range(2):
            try:
                self._client.create(path, owner, ephemeral=True)
                return True
            except NodeExistsError:
                try:
                    holder, stat = self._client.get(path, watch=self._node_changed)
                except NoNodeError:
                    continue
            if stat.ephemeralOwner == self._client.client_id[0]:
                return True
            if holder != owner:
                return False
            self._client.delete(path)  # left by a previous process with the same name
        return False

    async def release(self, path: str) -> None:
        """Delete a node of `acquire`. Waits while the connection is lost."""
        await self._run(self._client.retry, self._client.delete, path)
