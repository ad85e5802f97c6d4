"""Dials a peer until a link to it exists, with backoff and jitter."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import NamedTuple

from kafkaesque.broker.replication.link import Link, LinkConfig
from kafkaesque.broker.replication.rules.peer_hello import HelloAnswer, HelloRefusal
from kafkaesque.model.backoff import Backoff


class PeerAddress(NamedTuple):
    host: str
    port: int


async def greet(
    link: Link, loop: asyncio.AbstractEventLoop, address: PeerAddress, seconds_max: float
) -> HelloAnswer:
    """Connects and exchanges hellos. Raises OSError (TimeoutError included) on failure; the link is
    ended then."""
    try:
        async with asyncio.timeout(seconds_max):
            await loop.create_connection(lambda: link, address.host, address.port)
            answer = await asyncio.shield(link.greeted)
    except BaseException:
        # On cancellation too: the caller has no reference to the link, and the exception is
        # re-raised.
        link.end("no answer to the hello")
        raise
    if answer is None:
        raise ConnectionAbortedError("the connection was lost before the hello was answered")
    return answer


class Dialler:
    """Keeps one peer linked, in a task that sleeps while a link exists."""

    __slots__ = (
        "_address",
        "_backoff",
        "_config",
        "_head_start_seconds",
        "_loop",
        "_new_link",
        "_task",
        "_wanted",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        config: LinkConfig,
        random: Random,
        address: PeerAddress,
        new_link: Callable[[], Link],
        *,
        is_lower: bool,
    ) -> None:
        self._loop = loop
        self._config = config
        self._address = address
        self._new_link = new_link
        # Jitter, so that two brokers that refuse each other's connections do not do so forever.
        self._backoff = Backoff(
            config.redial_seconds_min,
            config.redial_seconds_max,
            lambda: random.uniform(0.5, 1.0),
        )
        # If both sides dial, the connection of the lower node id wins, so it gets a head start.
        self._head_start_seconds = 0.0 if is_lower else config.redial_seconds_min
        self._wanted = asyncio.Event()
        self._wanted.set()
        self._task = loop.create_task(self._run(), name="peer dialler")

    def set_address(self, address: PeerAddress) -> None:
        """Dials this address from the next attempt on."""
        self._address = address

    def linked(self) -> None:
        self._backoff.reset()
        self._wanted.clear()

    def unlinked(self) -> None:
        self._wanted.set()

    def stop(self) -> None:
        self._task.cancel()

    async def stopped(self) -> None:
        await asyncio.wait((self._task,))

    async def _run(self) -> None:
        while True:
            await self._wanted.wait()
            await asyncio.sleep(self._head_start_seconds)
            while self._wanted.is_set():
                if not await self._dial():
                    await asyncio.sleep(self._backoff.next_s())

    async def _dial(self) -> bool:
        link, seconds_max = self._new_link(), self._config.dial_seconds_max
        try:
            answer = await greet(link, self._loop, self._address, seconds_max)
        except OSError:
            return False
        return answer.refusal is HelloRefusal.ACCEPTED and not self._wanted.is_set()
