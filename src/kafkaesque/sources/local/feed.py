"""A timeline that runs by the clock, and what its operator may do to it while it runs."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from kafkaesque.sources.local.timeline import Timeline
from kafkaesque.sources.rules import generator
from kafkaesque.sources.rules.generator import Entry

BEAT_SECONDS = 0.01
"""Entries that are due within a beat leave together."""


@dataclass(slots=True)
class Faults:
    """What goes wrong on cue. Zero: never. Counts are per connection, in entries sent."""

    disconnect_every: int = 0
    """Entries that were never sent before; a replay does not count, so that every client gets on."""
    malformed_every: int = 0
    """A frame that is no JSON, before every n-th entry."""
    oversized_every: int = 0
    """A frame of `oversized_bytes`, before every n-th entry."""
    oversized_bytes: int = 2_000_000
    refuse_status: int = 0
    """Answer every connection with this HTTP status."""
    refuse_count: int = 0
    """Refuse just so many, then serve again; 0 with a status refuses all."""
    search_status: int = 0
    """Answer X's recent search with this HTTP status: not every access has it."""
    stall_after: int = 0
    """Send nothing more after n entries, keep-alives included, and stay connected."""


@dataclass(slots=True)
class Counts:
    """What the server has done so far."""

    connections: int = 0
    refused: int = 0
    disconnected: int = 0
    entries: int = 0
    pages: int = 0
    open: int = 0
    last_tick: int = -1
    """The last tick that was sent to anybody."""
    cue: int = 0
    """How often all clients were cut off on cue."""


class _Kept(msgspec.Struct):
    """The file that lets a timeline go on after the server was away."""

    seed: int
    epoch_us: int
    rate: float
    count: int | None = None


class Feed:
    """The timeline starts when the first client asks for it, unless it had started before."""

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
        """The tick that a client gets first which comes now; the very first client starts it all."""
        if self._started_s is None:
            self._started_s = self._wall_s()
            return 0
        return self.head()

    def head(self) -> int:
        """Ticks published so far."""
        return self._ticks_at(self._wall_s())

    def tick_at(self, wall_s: float) -> int:
        """The first tick that was published at or after that moment."""
        return self._ticks_at(wall_s)

    def _ticks_at(self, wall_s: float) -> int:
        if self._started_s is None:
            return 0
        return self.timeline.ticks_at(wall_s - self._started_s)

    async def follow(self, tick: int) -> AsyncIterator[list[Entry] | None]:
        """Entries tick by tick from `tick`, each when it is due; None each beat that has nothing."""
        while True:
            head = self.head()
            if tick >= head:
                yield None
                await asyncio.sleep(BEAT_SECONDS)
            while tick < head:
                yield generator.entries(self.timeline.seed, tick)
                tick += 1


def open_timeline(
    path: Path | None, seed: int | None, rate: float, count: int | None, now_s: float
) -> tuple[Timeline, float | None]:
    """The timeline kept in `path` and when it started, or a new one, which is then kept there.

    A kept timeline is taken up only if it is the one asked for. Without `seed`, a new one gets one
    that no other has: its posts are new to every log.
    """
    if path is not None and (kept := _read(path)) is not None:
        same_seed = seed is None or kept.seed == seed
        if same_seed and (kept.rate, kept.count) == (rate, count):
            started_s = kept.epoch_us / 1_000_000
            return Timeline(kept.seed, kept.epoch_us, rate, count), started_s
    chosen = secrets.randbelow(2**31) if seed is None else seed
    fresh = Timeline(chosen, int(now_s * 1_000_000), rate, count)
    if path is None:
        return fresh, None
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.encode(_Kept(chosen, fresh.epoch_us, rate, count)))
    return fresh, now_s


def _read(path: Path) -> _Kept | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Kept)
    except (OSError, msgspec.DecodeError):
        return None
