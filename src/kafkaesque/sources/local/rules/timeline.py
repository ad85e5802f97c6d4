"""Maps the generator to real time: when each entry appears, and which entry a cursor denotes. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from kafkaesque.sources.rules import generator
from kafkaesque.sources.rules.generator import NOMINAL_RATE, SyntheticPost, TimelineEntry

_SCALE_MIN = 0.02
"""Lower bound of the spacing of event times, so that every entry has its own microsecond. A timeline
faster than NOMINAL_RATE / _SCALE_MIN = 2500 posts per second therefore runs ahead of the clock."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """`seed` at `rate` posts per second, starting at `epoch_us`; ends after `count` posts, if given."""

    seed: int
    epoch_us: int
    rate: float = NOMINAL_RATE
    count: int | None = None

    @property
    def _scale(self) -> float:
        return max(_SCALE_MIN, NOMINAL_RATE / self.rate)

    def time_us(self, entry: TimelineEntry) -> int:
        """The event's time on the network; strictly increasing from entry to entry."""
        return self.post_time_us(generator.post(self.seed, entry.tick)) + entry.order

    def post_time_us(self, post: SyntheticPost) -> int:
        return self.epoch_us + int(post.offset_us * self._scale)

    def created_ms(self, post: SyntheticPost) -> int:
        """The creation time that the author's software reports."""
        return self.post_time_us(post) // 1000 - post.late_ms

    def ticks_at(self, elapsed_s: float) -> int:
        """How many ticks have been published `elapsed_s` after the start."""
        if elapsed_s < 0:
            return 0
        nominal_us = int(elapsed_s * self.rate / NOMINAL_RATE * 1_000_000)
        ticks = generator.count_at(self.seed, nominal_us)
        return ticks if self.count is None else min(ticks, self.count)

    def tick_of(self, time_us: int) -> int:
        """The first tick with an entry at or after `time_us`."""
        nominal_us = int((time_us - self.epoch_us) / self._scale)
        tick = max(0, generator.count_at(self.seed, nominal_us) - 2)
        # Rounding, and the entries after a post, leave us at most a few ticks early.
        while self.time_us(generator.entries(self.seed, tick)[-1]) < time_us:
            tick += 1
        return tick
