"""Which partitions of the timers this process owns: by election in the coordination service, or all.

Under ROOT, `members/NAME` and `owners/PARTITION` are ephemeral znodes. All members compute the same
assignment from the same list (rendezvous hashing). A member creates the owner node of its partition as soon
as the previous owner has released it or its session has ended. The nodes avoid conflicts; if two processes
consider themselves the owner for a moment, the log prevents a timer from firing twice (`timers/owner.py`).
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol, TypeVar

from kafkaesque.service.coordination import (
    CoordinationUnavailable,
    close_session,
    open_session,
)

if TYPE_CHECKING:
    from kazoo.client import KazooClient

T = TypeVar("T")

logger = logging.getLogger(__name__)

ROOT = "/tasks/timers"
SESSION_SECONDS = 5.0


class ElectionLost(Exception):
    """The session has ended: other processes may own the partitions of this one."""


class Ownership(Protocol):
    """Assigns partitions to this process. `acquire` and `release` are called one at a time."""

    async def open(self) -> None: ...

    async def wanted(self, partitions: int) -> frozenset[int]:
        """The partitions that this process should own. Raises ElectionLost if it is no longer a member."""
        ...

    async def acquire(self, partition: int) -> bool: ...

    async def release(self, partition: int) -> None: ...

    async def changed(self, timeout_s: float) -> None:
        """Returns when the assignment may have changed, after `timeout_s` at the latest."""
        ...

    async def close(self) -> None: ...


class Alone:
    """Owns all partitions: for tests, and for one process without a coordination service."""

    async def open(self) -> None: ...

    async def wanted(self, partitions: int) -> frozenset[int]:
        return frozenset(range(partitions))

    async def acquire(self, partition: int) -> bool:
        return True

    async def release(self, partition: int) -> None: ...

    async def changed(self, timeout_s: float) -> None:
        await asyncio.sleep(timeout_s)

    async def close(self) -> None: ...


def owner_of(partition: int, members: Iterable[str]) -> str | None:
    """The member with the highest weight. A member that joins or leaves moves only its own partitions."""
    return max(members, key=lambda member: _weight(member, partition), default=None)


def share_of(member: str, members: Iterable[str], partitions: int) -> frozenset[int]:
    """The partitions of `member`. Equal for all who see the same members."""
    everyone = sorted(set(members))
    return frozenset(one for one in range(partitions) if owner_of(one, everyone) == member)


def _weight(member: str, partition: int) -> bytes:
    return hashlib.blake2b(f"{partition}/{member}".encode(), digest_size=8).digest()


class Elected:
    """A member of the election at `hosts`. kazoo's blocking calls run in threads."""

    def __init__(self, hosts: str, name: str, root: str = ROOT) -> None:
        self._hosts = hosts
        self._name = name
        self._root = root
        self._client: KazooClient | None = None
        self._changed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._lost = False

    async def open(self) -> None:
        from kazoo.exceptions import KazooException
        from kazoo.handlers.threading import KazooTimeoutError

        self._lost = False
        try:
            client = self._client = await open_session(
                self._hosts, session_seconds=SESSION_SECONDS, name="timers"
            )
            await asyncio.to_thread(self._join, client)
        except (CoordinationUnavailable, KazooTimeoutError):
            await self.close()
            raise ElectionLost(f"no coordination service answers at {self._hosts}") from None
        except KazooException as error:
            await self.close()
            raise ElectionLost(f"{type(error).__name__}: {error}") from None

    def _join(self, client: KazooClient) -> None:
        from kazoo.exceptions import NodeExistsError

        client.add_listener(self._state_changed)
        client.ensure_path(f"{self._root}/owners")
        path = f"{self._root}/members/{self._name}"
        try:
            client.create(path, ephemeral=True, makepath=True)
        except NodeExistsError:
            # Left by a previous process of the same name, whose session has not ended yet.
            client.delete(path)
            client.create(path, ephemeral=True)

    def _state_changed(self, state: str) -> None:
        if state == "LOST":
            self._lost = True
        self._wake(None)

    def _wake(self, _event: object) -> None:
        self._loop.call_soon_threadsafe(self._changed.set)

    async def wanted(self, partitions: int) -> frozenset[int]:
        members = await self._call(self._members)
        return share_of(self._name, members, partitions)

    def _members(self, client: KazooClient) -> list[str]:
        found = client.get_children(f"{self._root}/members", watch=self._wake)
        return [str(name) for name in found]

    async def acquire(self, partition: int) -> bool:
        return await self._call(lambda client: self._acquire(client, partition))

    def _acquire(self, client: KazooClient, partition: int) -> bool:
        from kazoo.exceptions import NodeExistsError, NoNodeError

        path = f"{self._root}/owners/{partition}"
        for _ in range(2):
            try:
                client.create(path, self._name.encode(), ephemeral=True)
                return True
            except NodeExistsError:
                try:
                    owner, stat = client.get(path, watch=self._wake)
                except NoNodeError:
                    continue
            if stat.ephemeralOwner == client.client_id[0]:
                return True
            if owner != self._name.encode():
                return False
            client.delete(path)  # left by a previous process
        return False

    async def release(self, partition: int) -> None:
        def release(client: KazooClient) -> None:
            client.delete(f"{self._root}/owners/{partition}")

        await self._call(release)

    async def _call(self, function: Callable[[KazooClient], T]) -> T:
        """Runs `function` in a thread. Raises ElectionLost for errors that end the membership."""
        from kazoo.exceptions import KazooException, NoNodeError

        client = self._client
        if client is None or self._lost:
            raise ElectionLost("the session has ended")

        def call() -> T:
            result: T = client.retry(function, client)
            return result

        try:
            return await asyncio.to_thread(call)
        except NoNodeError:
            raise ElectionLost("a node of this process is gone") from None
        except KazooException as error:
            raise ElectionLost(f"{type(error).__name__}: {error}") from None

    async def changed(self, timeout_s: float) -> None:
        try:
            await asyncio.wait_for(self._changed.wait(), timeout_s)
        except TimeoutError:
            return
        self._changed.clear()

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await close_session(client)
