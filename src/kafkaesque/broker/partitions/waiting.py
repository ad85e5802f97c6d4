"""Waiting on a partition: readers for more committed bytes, writers for more than a majority."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol

from kafkaesque.broker.raft.types import LogIndex
from kafkaesque.broker.replication.replica import Replica

WIDE_CHECK_SECONDS = 0.005
"""How often the replicas that hold a record are counted, if more than a majority must. Raft reports
only what a majority holds, and `min.insync.replicas` above a majority is rare: not worth another
callback on every acknowledgement."""


class Watched(Protocol):
    def watch(self, watcher: BytesAwaited) -> None: ...

    def unwatch(self, watcher: BytesAwaited) -> None: ...


class BytesAwaited:
    """A long poll: `done` resolves when `missing_bytes` more are committed, or on `interrupt`.

    One object watches any number of partitions. Each reports every commit to it.
    """

    __slots__ = ("_loop", "_watched", "done", "missing_bytes", "stable_only")

    def __init__(
        self, missing_bytes: int, loop: asyncio.AbstractEventLoop, *, stable_only: bool = False
    ) -> None:
        self.missing_bytes = missing_bytes
        self.stable_only = stable_only
        """The reader stops at the last stable offset: what open transactions write is no news."""
        self.done: asyncio.Future[None] = loop.create_future()
        self._loop = loop
        self._watched: list[Watched] = []

    def watch(self, partition: Watched) -> None:
        partition.watch(self)
        self._watched.append(partition)

    def unwatch_all(self) -> None:
        for partition in self._watched:
            partition.unwatch(self)

    async def wait(self, seconds_max: float) -> None:
        timer = self._loop.call_later(seconds_max, self.interrupt)
        try:
            await self.done
        finally:
            timer.cancel()

    def committed(self, size_bytes: int) -> None:
        self.missing_bytes -= size_bytes
        if self.missing_bytes <= 0:
            self.interrupt()

    def interrupt(self) -> None:
        """End the wait: enough bytes were committed, a partition is gone, or time is over."""
        if not self.done.done():
            self.done.set_result(None)


def notify_watchers(
    watchers: Iterable[BytesAwaited], size_bytes: int, *, is_stable_moved: bool | None
) -> None:
    """Report a commit of `size_bytes`. `is_stable_moved`: whether the last stable offset moved, for
    the readers that stop there; None if no transaction is open."""
    for watcher in tuple(watchers):
        if is_stable_moved is None or not watcher.stable_only:
            watcher.committed(size_bytes)
        elif is_stable_moved:
            watcher.interrupt()


async def held_by(
    replica: Replica, index: LogIndex, count: int, check_leads: Callable[[], None]
) -> None:
    """Return when `count` replicas hold the entry; `check_leads` raises once they never will."""
    while not replica.is_held_by(index, count):
        check_leads()
        await asyncio.sleep(WIDE_CHECK_SECONDS)
