"""How far this node has carried out the controller's log; can be waited for."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from kafkaesque.raft.types import LogIndex

SOON_SECONDS: Final = 5.0


class Progress:
    """See the module's text."""

    __slots__ = ("_index", "_waiting")

    def __init__(self) -> None:
        self._index = LogIndex(0)
        self._waiting: list[tuple[LogIndex, asyncio.Future[None]]] = []

    def is_at(self, index: LogIndex) -> None:
        self._index = index
        waiting, self._waiting = self._waiting, []
        for wanted, future in waiting:
            if wanted > index:
                self._waiting.append((wanted, future))
            elif not future.done():
                future.set_result(None)

    async def reaches(self, index: LogIndex) -> None:
        if index <= self._index:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((index, future))
        await future

    async def reaches_soon(self, index: LogIndex) -> None:
        """Wait a while, so that whoever asks this node next sees what was done. A node without room
        on its disk falls behind: its clients are told what the controller did all the same."""
        with suppress(TimeoutError):
            async with asyncio.timeout(SOON_SECONDS):
                await self.reaches(index)
