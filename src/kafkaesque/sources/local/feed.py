"""A timeline that runs by the clock, and the file that keeps it across restarts."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec

from kafkaesque.sources.local.rules.timeline import Timeline
from kafkaesque.sources.rules import generator
from kafkaesque.sources.rules.generator import TimelineEntry

POLL_SECONDS = 0.01
"""Entries that become due within this interval are sent together."""


class _TimelineFile(msgspec.Struct):
    """The file from which a restarted server continues its timeline."""

    seed: int
    epoch_us: int
    rate: float
    count: int | None = None


class Feed:
    """The timeline starts with the first client, unless it was started before."""

    def __init__(
        self,
        timeline: Timeline,
        *,
        started_s: float | None = None,
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        self.timeline = timeline
        self._wall_s = wall_s
        self._started_s = started_s

    def join(self) -> int:
        """The first tick of a client that joins now. The first client starts the timeline."""
        if self._started_s is None:
            self._started_s = self._wall_s()
            return 0
        return self.head()

    def head(self) -> int:
        """The number of ticks published so far."""
        return self._ticks_at(self._wall_s())

    def tick_at(self, wall_s: float) -> int:
        """The first tick published at or after that time."""
        return self._ticks_at(wall_s)

    def _ticks_at(self, wall_s: float) -> int:
        if self._started_s is None:
            return 0
        return self.timeline.ticks_at(wall_s - self._started_s)

    async def follow(self, tick: int) -> AsyncIterator[list[TimelineEntry] | None]:
        """Entries tick by tick from `tick`, each when due; None for each poll without any."""
        while True:
            head = self.head()
            if tick >= head:
                yield None
                await asyncio.sleep(POLL_SECONDS)
            while tick < head:
                yield generator.entries(self.timeline.seed, tick)
                tick += 1


def open_timeline(
    path: Path | None, seed: int | None, rate: float, count: int | None, now_s: float
) -> tuple[Timeline, float | None]:
    """The timeline stored in `path` and its start time, or a new one, which is then stored there.

    A stored timeline is used only if it matches the arguments. Without `seed`, a new timeline gets a random
    seed, so that its posts are new to every log.
    """
    if path is not None and (stored := _read(path)) is not None:
        same_seed = seed is None or stored.seed == seed
        if same_seed and (stored.rate, stored.count) == (rate, count):
            started_s = stored.epoch_us / 1_000_000
            return Timeline(stored.seed, stored.epoch_us, rate, count), started_s
    chosen = secrets.randbelow(2**31) if seed is None else seed
    fresh = Timeline(chosen, int(now_s * 1_000_000), rate, count)
    if path is None:
        return fresh, None
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.encode(_TimelineFile(chosen, fresh.epoch_us, rate, count)))
    return fresh, now_s


def _read(path: Path) -> _TimelineFile | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=_TimelineFile)
    except (OSError, msgspec.DecodeError):
        return None
