from __future__ import annotations

import asyncio
import contextvars
import threading
import time

import pytest

from kafkaesque.tasks import thread_pool
from kafkaesque.tasks.errors import TimeLimitExceeded
from kafkaesque.tasks.thread_pool import ThreadPool


def test_functions_run_concurrently_with_the_callers_context() -> None:
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("n")
    meeting = threading.Barrier(3, timeout=30)

    async def test() -> None:
        pool = ThreadPool(3)
        variable.set(7)

        def work() -> int:
            meeting.wait()
            return variable.get()

        assert await asyncio.gather(*(pool.run(work, None) for _ in range(3))) == [7, 7, 7]
        pool.close()

    asyncio.run(test())


def test_exceptions_of_a_function_reach_the_caller() -> None:
    async def test() -> None:
        pool = ThreadPool(1)
        with pytest.raises(KeyError, match="x"):
            await pool.run(lambda: {}["x"], None)
        with pytest.raises(RuntimeError, match="StopIteration"):
            await pool.run(lambda: next(iter(())), 5.0)
        assert await pool.run(lambda: 1, None) == 1
        pool.close()

    asyncio.run(test())


def test_a_function_in_python_is_interrupted_at_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_pool, "GRACE_SECONDS", 60.0)

    async def test() -> None:
        pool = ThreadPool(1)

        def spin() -> None:
            while True:
                time.sleep(0.001)

        with pytest.raises(TimeLimitExceeded, match=r"longer than 0\.05 s$"):
            await pool.run(spin, 0.05)
        assert pool.abandoned == 0
        assert await pool.run(lambda: "next", 5.0) == "next"
        pool.close()

    asyncio.run(test())


def test_a_function_that_cannot_be_interrupted_is_abandoned_and_its_thread_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(thread_pool, "GRACE_SECONDS", 0.05)
    release = threading.Event()

    def stubborn() -> None:
        while True:
            try:
                release.wait()
                return
            except TimeLimitExceeded:
                continue

    async def test() -> None:
        pool = ThreadPool(1)
        with pytest.raises(TimeLimitExceeded, match="cannot be stopped"):
            await pool.run(stubborn, 1.0)
        assert pool.abandoned == 1
        assert await pool.run(lambda: "next", None) == "next"
        release.set()
        pool.close()

    asyncio.run(test())


class SkippingLoop(asyncio.SelectorEventLoop):
    """An event loop with a clock that tests advance; callbacks that become due run."""

    skipped_s = 0.0

    def time(self) -> float:
        return super().time() + self.skipped_s

    async def skip(self, seconds: float) -> None:
        await asyncio.sleep(0)  # those just made set their timers
        self.skipped_s += seconds
        for _ in range(5):  # a timer, what it wakes, and what that sets or ends
            await asyncio.sleep(0)


def test_waiting_for_a_free_thread_is_not_counted_against_the_limit() -> None:
    release = threading.Event()

    async def test() -> None:
        pool = ThreadPool(1)
        first = asyncio.create_task(pool.run(release.wait, None))
        second = asyncio.create_task(pool.run(lambda: "second", 60.0))
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SkippingLoop)
        await loop.skip(3600.0)  # the limit
        await loop.skip(3600.0)  # what it would have left to be interrupted
        assert not second.done()
        release.set()
        assert await second == "second"
        await first
        pool.close()

    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        runner.run(test())
