"""Who waits: readers for more committed bytes, writers for more replicas than a majority."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from kafkaesque.broker.raft.types import LogIndex
from kafkaesque.broker.replication.replica import Replica

WIDE_CHECK_SECONDS = 0.005
"""How often it is looked whether more than a majority have a record, where that is asked for."""


class BytesAwaited:
    """A long poll: `done` resolves when `missing_bytes` more were committed, or on `interrupt`.

    One object watches any number of partitions; each tells it of every commit by `committed`.
    """

    __slots__ = ("done", "missing_bytes", "stable_only")

    def __init__(
        self, missing_bytes: int, loop: asyncio.AbstractEventLoop, *, stable_only: bool = False
    ) -> None:
        self.missing_bytes = missing_bytes
        self.stable_only = stable_only
        """Whether it reads up to the last stable offset only: what a transaction that is open has
        written is no news for it."""
        self.done: asyncio.Future[None] = loop.create_future()

    def committed(self, size_bytes: int) -> None:
        self.missing_bytes -= size_bytes
        if self.missing_bytes <= 0:
            self.interrupt()

    def interrupt(self) -> None:
        """Have the reader look again at once: enough bytes came, or a partition has gone."""
        if not self.done.done():
            self.done.set_result(None)


def tell_watchers(
    watchers: Iterable[BytesAwaited], size_bytes: int, *, is_stable_moved: bool | None
) -> None:
    """So many bytes were committed. `is_stable_moved` is None where no transaction holds anything
    back; else it tells those who read only up to the last stable offset whether that has moved."""
    for watcher in tuple(watchers):
        if is_stable_moved is None or not watcher.stable_only:
            watcher.committed(size_bytes)
        elif is_stable_moved:
            watcher.interrupt()


async def held_by(
    replica: Replica, index: LogIndex, count: int, check_leads: Callable[[], None]
) -> None:
    """Return when so many replicas hold the entry; `check_leads` raises when that is in vain."""
    while not replica.is_held_by(index, count):
        check_leads()
        await asyncio.sleep(WIDE_CHECK_SECONDS)
