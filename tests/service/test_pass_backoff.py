"""The loops of the services that run one pass after another and wait longer after each failure."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import pytest

from kafkaesque.chat.backend import Backend
from kafkaesque.chat.config import BackendConfig
from kafkaesque.chat.translator import Translator
from kafkaesque.client.memory import MemoryLog
from kafkaesque.client.ports import LogUnavailable
from kafkaesque.model.backoff import Backoff
from kafkaesque.service.clock import SystemClock
from kafkaesque.sources.connector import SourceConnector
from kafkaesque.tasks import App
from kafkaesque.tasks.config import tasks_config
from kafkaesque.tasks.timers.election import Alone
from kafkaesque.tasks.timers.service import TimerService
from kafkaesque.tasks.worker import Worker

FIRST_S, LONGEST_S = 0.1, 0.4


class Loop(NamedTuple):
    new: Callable[[], Any]
    run: str
    one_pass: str
    constants: str


LOOPS = {
    "chat back end": Loop(
        lambda: Backend(MemoryLog(), "b1", BackendConfig()),
        "run", "_pass", "kafkaesque.chat.backend.RETRY_SECONDS",
    ),
    "chat translator": Loop(
        lambda: Translator(MemoryLog(), "t1", "v2", BackendConfig()),
        "run", "_pass", "kafkaesque.chat.translator.RETRY_SECONDS",
    ),
    "tasks worker": Loop(
        lambda: Worker(App("loop"), MemoryLog(), tasks_config({})),
        "_consume", "_run_session", "kafkaesque.tasks.worker.RETRY_SECONDS",
    ),
    "timers": Loop(
        lambda: TimerService(MemoryLog(), Alone(), None, SystemClock(), tasks_config({})),
        "run", "_run_membership", "kafkaesque.tasks.timers.service.RETRY_SECONDS",
    ),
    "source connector": Loop(
        lambda: SourceConnector(MemoryLog(), *cast("Any", (None, None, None))),
        "run", "_pass", "kafkaesque.sources.connector.LOG_RETRY_SECONDS",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LOOPS)
def test_waits_grow_until_a_pass_has_run_for_longer_than_the_longest_wait(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = LOOPS[name]
    monkeypatch.setattr(loop.constants, FIRST_S)
    monkeypatch.setattr(f"{loop.constants}_MAX", LONGEST_S)
    waits: list[float] = []
    next_s = Backoff.next_s

    def record(backoff: Backoff) -> float:
        waits.append(next_s(backoff))
        return waits[-1]

    monkeypatch.setattr(Backoff, "next_s", record)

    async def story() -> None:
        service = loop.new()
        durations_s = iter([0.0, 0.0, 0.0, 0.0, LONGEST_S + 0.05])

        async def one_pass() -> None:
            duration_s = next(durations_s, None)
            if duration_s is None:
                service.stop()
                return
            await asyncio.sleep(duration_s)
            raise LogUnavailable("scripted")

        monkeypatch.setattr(service, loop.one_pass, one_pass)
        await asyncio.wait_for(getattr(service, loop.run)(), 30.0)

    asyncio.run(story())
    assert waits == [FIRST_S, 2 * FIRST_S, LONGEST_S, LONGEST_S, FIRST_S]
