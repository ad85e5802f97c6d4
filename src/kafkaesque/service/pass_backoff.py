"""Waits between the passes of a service: a pass runs until the log fails, and the next starts from the log."""

from __future__ import annotations

import asyncio
import contextlib
import time

from kafkaesque.model.backoff import Backoff


class PassBackoff:
    """Exponential backoff for passes. A pass that ran for longer than the longest wait resets it."""

    def __init__(self, first_s: float, longest_s: float) -> None:
        self._backoff = Backoff(first_s, longest_s)
        self._longest_s = longest_s
        self._started_s = time.monotonic()

    def start(self) -> None:
        """A pass starts now."""
        self._started_s = time.monotonic()

    def next_s(self) -> float:
        """Call it when a pass has failed; returns how long to wait before the next one."""
        if time.monotonic() - self._started_s > self._longest_s:
            self._backoff.reset()
        return self._backoff.next_s()


async def sleep_unless(stopping: asyncio.Event, seconds: float) -> None:
    """Sleep; return early when `stopping` is set."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stopping.wait()
