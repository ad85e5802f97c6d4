"""Futures by log position."""

from __future__ import annotations

import asyncio

import pytest

from kafkaesque.broker.raft.types import LogIndex
from kafkaesque.broker.replication.commit_waiters import CommitWaiters


def test_a_future_resolves_when_its_position_is_reached() -> None:
    async def story() -> None:
        waiters: CommitWaiters[LogIndex] = CommitWaiters()
        five, three = waiters.add(LogIndex(5)), waiters.add(LogIndex(3))
        waiters.advance(LogIndex(2))
        assert not three.done()
        waiters.advance(LogIndex(4))
        assert three.done()
        assert not five.done()
        waiters.advance(LogIndex(5))
        await five
        assert not waiters.pending

    asyncio.run(story())


def test_a_failure_reaches_every_waiter_and_leaves_none() -> None:
    async def story() -> None:
        waiters: CommitWaiters[LogIndex] = CommitWaiters()
        futures = [waiters.add(LogIndex(index)) for index in (7, 6)]
        waiters.fail_all(ValueError("gone"))
        assert not waiters.pending
        for future in futures:
            with pytest.raises(ValueError, match="gone"):
                await future

    asyncio.run(story())


def test_a_cancelled_waiter_is_skipped() -> None:
    async def story() -> None:
        waiters: CommitWaiters[LogIndex] = CommitWaiters()
        reached, lost = waiters.add(LogIndex(1)), waiters.add(LogIndex(2))
        reached.cancel()
        lost.cancel()
        waiters.advance(LogIndex(1))
        waiters.fail_all(ValueError("gone"))
        assert reached.cancelled()
        assert lost.cancelled()

    asyncio.run(story())
