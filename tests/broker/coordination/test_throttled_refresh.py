"""Cheap refreshes run for every read; expensive ones take at most a tenth of the time."""

from __future__ import annotations

import asyncio

from kafkaesque.broker.coordination.group_survey import COSTLY_SECONDS, REUSE, ThrottledRefresh
from kafkaesque.testing import ManualClock


class Survey:
    def __init__(self, cost_s: float) -> None:
        self.clock = ManualClock(0)
        self.cost_s = cost_s
        self.count = 0
        self.under_way = 0
        self.gathering = ThrottledRefresh(self._gather, self.clock)

    async def _gather(self) -> float:
        assert self.under_way == 0, "one at a time"
        self.under_way += 1
        await asyncio.sleep(0)
        self.under_way -= 1
        self.count += 1
        return self.cost_s


def test_cheap_is_gathered_for_each_look() -> None:
    async def story() -> None:
        survey = Survey(COSTLY_SECONDS / 2)
        await asyncio.gather(*(survey.gathering.run() for _ in range(5)))
        assert survey.count == 5

    asyncio.run(story())


def test_dear_is_shared_for_ten_times_as_long_as_it_took() -> None:
    async def story() -> None:
        survey = Survey(2 * COSTLY_SECONDS)
        await asyncio.gather(*(survey.gathering.run() for _ in range(5)))
        survey.clock.advance(REUSE * 2 * COSTLY_SECONDS - 0.001)
        await survey.gathering.run()
        assert survey.count == 1
        survey.clock.advance(0.002)
        await survey.gathering.run()
        assert survey.count == 2

    asyncio.run(story())
