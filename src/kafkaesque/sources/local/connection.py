"""One client of the local server: sends entries until it leaves, is cut off on cue, or stalls."""

from __future__ import annotations

import asyncio
from typing import Protocol

from kafkaesque.sources.local.feed import Counts, Faults, Feed
from kafkaesque.sources.rules.generator import Entry


class Wire(Protocol):
    """How one network writes to one client."""

    async def send(self, data: bytes) -> None: ...

    def render(self, entry: Entry) -> bytes | None:
        """The frame of an entry; None if this client did not ask for it."""
        ...

    @property
    def keepalive(self) -> bytes:
        """What is sent when nothing happens; empty if the transport has its own."""
        ...

    @property
    def goodbye(self) -> bytes:
        """What is sent before a disconnect on cue; empty for nothing."""
        ...

    def broken(self, data: bytes) -> bytes:
        """A frame around bytes that are no message."""
        ...


KEEPALIVE_SECONDS = 15.0


class Connection:
    """Serves `wire` from `tick` on; `run` returns when the connection is to be closed."""

    def __init__(self, feed: Feed, faults: Faults, counts: Counts, wire: Wire) -> None:
        self._feed = feed
        self._faults = faults
        self._counts = counts
        self._wire = wire
        self._sent = 0
        self._fresh = 0
        self._last_tick = counts.last_tick

    async def run(self, tick: int, until: int | None = None) -> None:
        """`until` is the tick before which a replay ends; None goes on for ever."""
        cue = self._counts.cue
        self._counts.connections += 1
        self._counts.open += 1
        quiet_s = asyncio.get_running_loop().time()
        try:
            async for entries in self._feed.follow(tick):
                if cue != self._counts.cue or await self._serve(entries or ()):
                    await self._cut()
                    return
                now_s = asyncio.get_running_loop().time()
                if entries:
                    tick += 1
                    quiet_s = now_s
                    if until is not None and tick >= until:
                        return
                elif now_s - quiet_s > KEEPALIVE_SECONDS and self._wire.keepalive:
                    await self._wire.send(self._wire.keepalive)
                    quiet_s = now_s
        finally:
            self._counts.open -= 1

    async def _serve(self, entries: list[Entry] | tuple[()]) -> bool:
        """Whether the connection is to be cut now."""
        for entry in entries:
            frame = self._wire.render(entry)
            if frame is None:
                continue
            await self._disturb()
            await self._wire.send(frame)
            self._sent += 1
            self._counts.entries += 1
            self._fresh += entry.tick > self._last_tick
            self._counts.last_tick = max(self._counts.last_tick, entry.tick)
            every = self._faults.disconnect_every
            if every and self._fresh >= every:
                return True
        return False

    async def _disturb(self) -> None:
        faults = self._faults
        number = self._sent + 1
        if faults.malformed_every and number % faults.malformed_every == 0:
            await self._wire.send(self._wire.broken(b'{"torn": '))
        if faults.oversized_every and number % faults.oversized_every == 0:
            await self._wire.send(self._wire.broken(b"x" * faults.oversized_bytes))
        if faults.stall_after and number > faults.stall_after:
            await asyncio.Event().wait()

    async def _cut(self) -> None:
        self._counts.disconnected += 1
        if self._wire.goodbye:
            await self._wire.send(self._wire.goodbye)
