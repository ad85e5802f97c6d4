"""The task application of fault runs: each call writes one record, so that calls can be counted.

`plain` may write it more than once, `once` never does.
"""

from __future__ import annotations

import asyncio
import time

from kafkaesque.client.ports import Log, LogUnavailable, Record
from kafkaesque.events.topics import TopicSpec
from kafkaesque.tasks.app import App

KEYS = 1000

RAN = TopicSpec("probe.ran", 4, "none", "Numbers of the plain calls that ran.")
ONCE = TopicSpec("probe.once", 4, "none", "Numbers of the effectively-once calls that ran.")

app = App("probe")


@app.task(key=lambda n: str(n % KEYS))
async def plain(n: int) -> None:
    await app.send_records([Record(RAN.name, None, str(n).encode())])


@app.task(effectively_once=True, key=lambda n: str(n % KEYS))
async def once(n: int) -> None:
    await app.send_records([Record(ONCE.name, None, str(n).encode())])


@app.task
async def timed(n: int) -> None:
    """The task that the fault run's timers call; no worker runs it there."""


async def prepare(log: Log, timeout_s: float = 180.0) -> None:
    """Creates the topics. Retries for `timeout_s`, since the machine may be busy."""
    deadline_s = time.monotonic() + timeout_s
    while True:
        try:
            await log.admin.ensure_topics([*app.topics(), RAN, ONCE])
            return
        except LogUnavailable:
            if time.monotonic() > deadline_s:
                raise
            await asyncio.sleep(1.0)
