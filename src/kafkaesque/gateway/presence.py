"""Writes presence records: which users are connected. Changes within a short time are written together.

A record covers all of a user's connections, on any gateway. So when another gateway writes that a user left,
or dies while the user's record names it, a gateway that still has the user writes the record again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Container

from kafkaesque.client.ports import LogError, Record
from kafkaesque.events.gateway import PRESENCE, Presence, encode_value
from kafkaesque.gateway.batching_writer import BatchingWriter
from kafkaesque.gateway.rules.users import Users

logger = logging.getLogger(__name__)

LINGER_SECONDS = 0.05


class PresenceWriter:
    """Writes the presence of one gateway's users."""

    def __init__(self, gateway: str, users: Users, writer: BatchingWriter) -> None:
        self._gateway = gateway
        self._users = users
        self._writer = writer
        self._dirty: set[str] = set()
        self._elsewhere: dict[str, str] = {}
        """Users of this gateway whose newest record names another one, by user."""
        self._wake = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self.task = asyncio.create_task(self._run())

    async def stop(self, *, flush: bool) -> None:
        if self.task is not None:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)
        if flush:
            self._flush()

    def changed(self, user: str) -> None:
        self._dirty.add(user)
        self._wake.set()

    def read(self, user: str, presence: Presence | None) -> None:
        """A record of `gw.presence` was read, written by any gateway."""
        if self._users.get(user) is None:
            self._elsewhere.pop(user, None)
        elif presence is None:
            self.changed(user)
        elif presence.gateway != self._gateway:
            self._elsewhere[user] = presence.gateway
        else:
            self._elsewhere.pop(user, None)

    def gateways_changed(self, alive: Container[str]) -> None:
        for user in [user for user, name in self._elsewhere.items() if name not in alive]:
            del self._elsewhere[user]
            self.changed(user)

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            await asyncio.sleep(LINGER_SECONDS)
            self._wake.clear()
            self._flush()

    def _flush(self) -> None:
        dirty, self._dirty = self._dirty, set()
        for name in dirty:
            if not self._writer.submit(self._record(name), self._written):
                self._dirty.add(name)

    def _record(self, name: str) -> Record:
        user = self._users.get(name)
        value = None
        if user is not None:
            value = encode_value(Presence(self._gateway, user.connections, user.since_ms))
        return Record(PRESENCE.name, name.encode(), value)

    def _written(self, failure: LogError | None) -> None:
        if failure is not None:
            logger.warning("a presence record may be missing: %s", failure)
