"""In-memory time series: ten minutes at one-second and six hours at ten-second resolution.

Each series has two ring buffers. Values in the same slot are averaged; a slot without a value is NaN.
Memory is bounded by the number of series (`SERIES_MAX`), and a ring buffer grows only as it fills.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

FINE_STEP_S: Final = 1
FINE_SLOTS: Final = 600
COARSE_STEP_S: Final = 10
COARSE_SLOTS: Final = 2160
SERIES_MAX: Final = 4000
"""Beyond this, the series that was updated least recently is evicted. 22 KB each when full."""
EVICT_AFTER_S: Final = FINE_STEP_S * FINE_SLOTS
"""A series may be evicted once it had no new value for this long."""
_FIRST_SLOTS: Final = 64


class Point(NamedTuple):
    at_s: int
    value: float


class RingBuffer:
    """`slots` averages over `step_s` seconds each. Slot n is stored at n modulo the current size."""

    __slots__ = ("_count", "_data", "_first", "_newest", "slots", "step_s")

    def __init__(self, step_s: int, slots: int) -> None:
        self.step_s = step_s
        self.slots = slots
        self._data = array("d")
        self._newest = -1
        """Number of the newest slot: its start in seconds divided by `step_s`."""
        self._first = 0
        """Number of the first slot that ever had a value."""
        self._count = 0
        """Number of values averaged in the newest slot."""

    def add(self, at_s: float, value: float) -> None:
        """Values arrive in time order; one that is older than the newest slot is dropped."""
        slot = int(at_s // self.step_s)
        if slot < self._newest:
            return
        if slot > self._newest:
            self._advance(slot)
        self._count += 1
        index = slot % len(self._data)
        before = self._data[index] if self._count > 1 else value
        self._data[index] = before + (value - before) / self._count

    def _advance(self, slot: int) -> None:
        if not self._data:
            self._data = array("d", [math.nan]) * min(_FIRST_SLOTS, self.slots)
            self._first = slot
        skipped = slot - self._newest - 1 if self._newest >= 0 else 0
        while len(self._data) < self.slots and slot - self._first >= len(self._data):
            self._grow()
        size = len(self._data)
        for number in range(slot - min(skipped, size - 1), slot):
            self._data[number % size] = math.nan
        self._newest, self._count = slot, 0

    def _grow(self) -> None:
        """Double the size and copy the slots to their new positions."""
        old = self._data
        size = min(len(old) * 2, self.slots)
        new = array("d", [math.nan]) * size
        for number in range(max(self._first, self._newest - len(old) + 1), self._newest + 1):
            new[number % size] = old[number % len(old)]
        self._data = new

    def points(self, since_s: float = -math.inf) -> Iterator[Point]:
        """Points since `since_s`, oldest first, without empty slots."""
        size = len(self._data)
        first = self._newest - size + 1
        if since_s > first * self.step_s:
            first = math.ceil(since_s / self.step_s)
        for slot in range(first, self._newest + 1):
            value = self._data[slot % size]
            if not math.isnan(value):
                yield Point(slot * self.step_s, value)


class TimeSeries:
    """One metric over time, in both resolutions."""

    __slots__ = ("coarse", "fine", "last_s")

    def __init__(self) -> None:
        self.fine = RingBuffer(FINE_STEP_S, FINE_SLOTS)
        self.coarse = RingBuffer(COARSE_STEP_S, COARSE_SLOTS)
        self.last_s = -math.inf

    def add(self, at_s: float, value: float) -> None:
        self.fine.add(at_s, value)
        self.coarse.add(at_s, value)
        self.last_s = at_s

    def points(self, window_s: float, now_s: float, since_s: float = -math.inf) -> list[Point]:
        """Points of the last `window_s` seconds, in the finest resolution that covers the window."""
        ring = self.fine if window_s <= FINE_STEP_S * FINE_SLOTS else self.coarse
        return list(ring.points(max(now_s - window_s, since_s)))


class MetricHistory:
    """Time series by name: `records_in`, `topic/orders/rate`, `group/billing/lag`."""

    def __init__(self, series_max: int = SERIES_MAX) -> None:
        self._series: dict[str, TimeSeries] = {}
        self._series_max = series_max

    def __len__(self) -> int:
        return len(self._series)

    def __contains__(self, name: str) -> bool:
        return name in self._series

    def names(self) -> list[str]:
        return sorted(self._series)

    def add(self, at_s: float, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            series = self._series.get(name)
            if series is None:
                if not self._make_room(at_s):
                    continue
                series = self._series[name] = TimeSeries()
            series.add(at_s, value)

    def _make_room(self, at_s: float) -> bool:
        """Evict the least recently updated series; False if even that one is still in use."""
        if len(self._series) < self._series_max:
            return True
        oldest = min(self._series, key=lambda name: self._series[name].last_s)
        if at_s - self._series[oldest].last_s < EVICT_AFTER_S:
            return False
        del self._series[oldest]
        return True

    def points(
        self, name: str, window_s: float, now_s: float, since_s: float = -math.inf
    ) -> list[Point]:
        series = self._series.get(name)
        return [] if series is None else series.points(window_s, now_s, since_s)

    def latest(self, name: str) -> float | None:
        series = self._series.get(name)
        if series is None:
            return None
        value = None
        for point in series.fine.points(series.last_s - 2 * COARSE_STEP_S):
            value = point.value
        return value
