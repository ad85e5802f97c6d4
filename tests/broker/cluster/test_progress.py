"""How far a node has carried out the controller's log."""

from __future__ import annotations

import asyncio

import pytest

from kafkaesque.broker.cluster import progress as progress_module
from kafkaesque.broker.cluster.progress import Progress
from kafkaesque.broker.raft.types import LogIndex


def test_waits_for_the_index_and_for_nothing_before_it() -> None:
    async def story() -> None:
        progress = Progress()
        waiting = asyncio.create_task(progress.reaches_if_it_can(LogIndex(5), lambda: False))
        for index in (3, 4):
            progress.is_at(LogIndex(index))
            await asyncio.sleep(0)
            assert not waiting.done()
        progress.is_at(LogIndex(5))
        await waiting
        await progress.reaches_if_it_can(LogIndex(4), lambda: True)

    asyncio.run(story())


def test_is_given_up_when_the_node_gets_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_module, "LOOK_SECONDS", 0.001)
    looks: list[bool] = [False, False, True]

    async def story() -> None:
        progress = Progress()
        await progress.reaches_if_it_can(LogIndex(5), lambda: looks.pop(0))
        assert looks == []
        progress.is_at(LogIndex(5))

    asyncio.run(story())
