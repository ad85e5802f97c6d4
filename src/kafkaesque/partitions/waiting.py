"""Readers that wait for more committed bytes on one or several partitions."""

from __future__ import annotations

import asyncio


class BytesAwaited:
    """A long poll: `done` resolves when `missing_bytes` more were committed, or on `interrupt`.

    One object watches any number of partitions; each tells it of every commit by `committed`.
    """

    __slots__ = ("done", "missing_bytes")

    def __init__(self, missing_bytes: int, loop: asyncio.AbstractEventLoop) -> None:
        self.missing_bytes = missing_bytes
        self.done: asyncio.Future[None] = loop.create_future()

    def committed(self, size_bytes: int) -> None:
        self.missing_bytes -= size_bytes
        if self.missing_bytes <= 0:
            self.interrupt()

    def interrupt(self) -> None:
        """Have the reader look again at once: enough bytes came, or a partition has gone."""
        if not self.done.done():
            self.done.set_result(None)
