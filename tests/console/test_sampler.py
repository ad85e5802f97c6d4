from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from tests.waiting import until

from kafkaesque.console.cluster.sampler import Sampler


def test_a_refresh_requested_during_a_sample_starts_another_sample(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story() -> None:
        sampler = Sampler(cast("Any", None), interval_s=3600.0)
        samples = 0

        async def sample() -> None:
            nonlocal samples
            samples += 1
            if samples == 1:
                sampler.request_refresh()

        monkeypatch.setattr(sampler, "sample", sample)
        running = asyncio.create_task(sampler.run())
        await until(lambda: samples == 2, within_s=10.0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(story())
