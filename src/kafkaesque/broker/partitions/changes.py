"""What changed since somebody last looked: partitions whose standing others follow."""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar

T = TypeVar("T")


class Changes(Generic[T]):
    """A set that can be waited for. One consumer."""

    __slots__ = ("_changed", "_event")

    def __init__(self) -> None:
        self._changed: dict[T, None] = {}
        self._event = asyncio.Event()

    def add(self, item: T) -> None:
        self._changed[item] = None
        self._event.set()

    async def take(self) -> list[T]:
        """Those that changed since the last call; waits for the first."""
        await self._event.wait()
        self._event.clear()
        changed, self._changed = self._changed, {}
        return list(changed)
