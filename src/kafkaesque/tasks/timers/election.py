"""Which partitions of the timers this process owns: by election in the coordination service, or all.

Under ROOT, `members/NAME` and `owners/PARTITION` are ephemeral znodes. All members compute the same
assignment from the same list (rendezvous hashing). A member creates the owner node of its partition as soon
as the previous owner has released it or its session has ended. The nodes avoid conflicts; if two processes
consider themselves the owner for a moment, the log prevents a timer from firing twice (`timers/owner.py`).
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol, TypeVar

from kafkaesque.service.coordination import CoordinationSession, CoordinationSessionError

T = TypeVar("T")

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
    """A member of the election at `hosts`."""

    def __init__(self, hosts: str, name: str, root: str = ROOT) -> None:
        self._hosts = hosts
        self._name = name
        self._root = root
        self._session: CoordinationSession | None = None
        self._changed = asyncio.Event()

    async def open(self) -> None:
        try:
            session = self._session = await CoordinationSession.open(
                self._hosts,
                session_seconds=SESSION_SECONDS,
                name="timers",
                on_change=self._changed.set,
            )
            await session.ensure_path(f"{self._root}/owners")
            await session.create_ephemeral(f"{self._root}/members/{self._name}")
            await session.watch_children(f"{self._root}/members", lambda _: self._changed.set())
        except CoordinationSessionError as error:
            await self.close()
            raise ElectionLost(str(error)) from None

    async def wanted(self, partitions: int) -> frozenset[int]:
        members = await self._call(lambda session: session.children(f"{self._root}/members"))
        return share_of(self._name, members, partitions)

    async def acquire(self, partition: int) -> bool:
        path = f"{self._root}/owners/{partition}"
        return await self._call(lambda session: session.acquire(path, self._name))

    async def release(self, partition: int) -> None:
        path = f"{self._root}/owners/{partition}"
        await self._call(lambda session: session.release(path))

    async def _call(self, function: Callable[[CoordinationSession], Awaitable[T]]) -> T:
        """Raises ElectionLost for errors that end the membership."""
        session = self._session
        if session is None or session.is_lost:
            raise ElectionLost("the session has ended")
        try:
            return await function(session)
        except CoordinationSessionError as error:
            raise ElectionLost(str(error)) from None

    async def changed(self, timeout_s: float) -> None:
        try:
            await asyncio.wait_for(self._changed.wait(), timeout_s)
        except TimeoutError:
            return
        self._changed.clear()

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()
