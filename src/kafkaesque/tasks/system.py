"""The machine's clock and chance, for whatever is not told otherwise."""

from __future__ import annotations

import os
import random
import time

from kafkaesque.model.ids import TimestampMs


class SystemClock:
    """See `model.clock.Clock`."""

    def wall_ms(self) -> TimestampMs:
        return TimestampMs(time.time_ns() // 1_000_000)

    def monotonic(self) -> float:
        return time.monotonic()


def new_id() -> str:
    return os.urandom(16).hex()


def new_span_id() -> str:
    return os.urandom(8).hex()


def chance() -> float:
    """From [0, 1): spreads delays, decides nothing that must be hard to guess."""
    return random.random()  # noqa: S311
