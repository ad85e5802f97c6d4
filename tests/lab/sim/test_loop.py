"""The part of an event loop that partitions use."""

from __future__ import annotations

import asyncio

import pytest

from kafkaesque.lab.sim.loop import SimulatedFuture, SimulatedLoop
from kafkaesque.lab.sim.schedule import Action, EventSchedule, NodeClock
from kafkaesque.model.errors import StorageFailed


class Process:
    def __init__(self) -> None:
        self.schedule = EventSchedule()
        self.clock = NodeClock(self.schedule, 0)

    def later(self, delay_us: int, action: Action) -> None:
        self.schedule.after(delay_us, action)

    def sync_latency_us(self) -> int:
        return 500


def test_task_resumes_when_its_thread_is_done() -> None:
    process = Process()
    seen = []

    async def work() -> int:
        seen.append(("before", process.schedule.now_us))
        found = await asyncio.to_thread(lambda: 41)
        seen.append(("after", process.schedule.now_us))
        return found + 1

    outcome = SimulatedLoop(process).create_task(work())
    assert seen == [("before", 0)]
    process.schedule.run_until(1000)
    assert seen[1:] == [("after", 500)]
    assert outcome.result() == 42


def test_expected_failure_of_a_thread_is_raised_where_it_is_awaited() -> None:
    process = Process()

    def refuse() -> None:
        raise StorageFailed("full")

    async def work() -> None:
        await asyncio.to_thread(refuse)

    outcome = SimulatedLoop(process).create_task(work())
    process.schedule.run_until(1000)
    with pytest.raises(StorageFailed, match="full"):
        outcome.result()


def test_callbacks_of_a_future_run_once_when_it_is_settled_or_at_once_later() -> None:
    future, seen = SimulatedFuture(), []
    future.add_done_callback(lambda done: seen.append(done.result()))
    assert not future.done()
    future.set_result(7)
    future.add_done_callback(lambda done: seen.append(done.exception()))
    assert seen == [7, None]


def test_sleep_wait_and_shield_run_on_simulated_time() -> None:
    process = Process()
    loop = SimulatedLoop(process)
    seen: list[tuple[str, float]] = []

    async def answer() -> int:
        await asyncio.sleep(0.2)
        return 7

    async def work() -> None:
        asked = loop.create_task(answer())
        await asyncio.wait([asked])  # type: ignore[type-var]
        seen.append(("waited", round(loop.time(), 3)))
        slow = loop.create_task(answer())
        seen.append((f"got {await asyncio.shield(slow)}", round(loop.time(), 3)))  # type: ignore[arg-type]

    loop.create_task(work())
    process.schedule.run_until(1_000_000)
    assert seen == [("waited", 0.2), ("got 7", 0.4)]


def test_cancelled_task_and_timer_do_nothing_any_more() -> None:
    process = Process()
    loop = SimulatedLoop(process)
    seen: list[str] = []

    async def work() -> None:
        await asyncio.sleep(0.1)
        seen.append("task")

    task = loop.create_task(work())
    timer = loop.call_at(0.1, seen.append, "timer")
    assert task.cancel()
    timer.cancel()
    process.schedule.run_until(1_000_000)
    assert seen == []
    assert task.cancelled()
    assert not task.cancel()


def test_task_that_cancels_itself_ends_where_it_next_waits() -> None:
    process = Process()
    loop = SimulatedLoop(process)
    seen: list[str] = []

    async def work() -> None:
        await asyncio.sleep(0.1)
        assert task.cancel()
        seen.append("after")
        await asyncio.sleep(0.1)
        seen.append("never")

    task = loop.create_task(work())
    process.schedule.run_until(1_000_000)
    assert seen == ["after"]
    assert task.cancelled()
