"""Waiting until this node's partitions match an entry of the controller's log."""

from __future__ import annotations

import asyncio

import pytest

from kafkaesque.broker.cluster import reconciler
from kafkaesque.broker.cluster.reconciler import ReconciledIndex
from kafkaesque.broker.raft.types import LogIndex


def test_waits_until_the_index_is_reached() -> None:
    async def story() -> None:
        reconciled = ReconciledIndex()
        waiting = asyncio.create_task(reconciled.wait_for_unless(LogIndex(5), lambda: False))
        for index in (3, 4):
            reconciled.advance(LogIndex(index))
            await asyncio.sleep(0)
            assert not waiting.done()
        reconciled.advance(LogIndex(5))
        await waiting
        await reconciled.wait_for_unless(LogIndex(4), lambda: True)

    asyncio.run(story())


def test_stops_waiting_when_the_node_gets_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconciler, "STUCK_CHECK_SECONDS", 0.001)
    checks: list[bool] = [False, False, True]

    async def story() -> None:
        reconciled = ReconciledIndex()
        await reconciled.wait_for_unless(LogIndex(5), lambda: checks.pop(0))
        assert checks == []
        reconciled.advance(LogIndex(5))

    asyncio.run(story())
