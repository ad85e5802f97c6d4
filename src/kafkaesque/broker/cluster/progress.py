"""How far this node has carried out the controller's log; can be waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from kafkaesque.broker.raft.types import LogIndex

LOOK_SECONDS: Final = 0.5


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

    async def reaches_if_it_can(self, index: LogIndex, is_stuck: Callable[[], bool]) -> None:
        """The same, and given up as soon as it `is_stuck`: whoever waits learns of what the controller
        did all the same."""
        reached = asyncio.ensure_future(self.reaches(index))
        try:
            while not reached.done() and not is_stuck():
                await asyncio.wait((reached,), timeout=LOOK_SECONDS)
        finally:
            reached.cancel()
