"""Workers on a real broker: order, concurrency, rebalances, stopping, commits."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from tests.waiting import until

from kafkaesque.client.dead_letters import read_dead_letters
from kafkaesque.client.kafka import KafkaLog
from kafkaesque.client.ports import Record, WriterOptions
from kafkaesque.client.reading import read_stretch
from kafkaesque.events.topics import TopicSpec
from kafkaesque.tasks import NO_RETRY, App, Retry
from kafkaesque.tasks.config import tasks_config
from kafkaesque.tasks.session import ConsumerSession
from kafkaesque.tasks.worker import Worker
from kafkaesque.testing.broker_process import BrokerProcess

pytestmark = pytest.mark.story

SECONDS = 90.0


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    settings = {"flush": "never", "offsets.topic.num.partitions": 4,
                "group.initial.rebalance.delay.ms": 0}  # fmt: skip
    with BrokerProcess(tmp_path_factory.mktemp("broker"), settings) as broker:
        yield broker.bootstrap_servers


@asynccontextmanager
async def working(app: App, log: KafkaLog, **settings: str) -> AsyncIterator[Worker]:
    config = tasks_config({name.replace("_", "."): value for name, value in settings.items()})
    worker = Worker(app, log, config)
    run = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        worker.stop()
        await run


def test_a_slow_call_blocks_its_key_and_nothing_else(bootstrap: str) -> None:
    app = App("keys", partitions=1)
    gate, ended = asyncio.Event(), []

    @app.task(key=lambda user: user)
    async def step(user: str, n: int) -> None:
        if user == "slow" and n == 0:
            await gate.wait()
        ended.append((user, n))

    async def test() -> None:
        log = KafkaLog(bootstrap)
        async with app.connect(log), working(app, log):
            for n in range(5):
                for user in ("slow", "a", "b"):
                    await step.send(user, n)
            await until(lambda: len(ended) == 10)
            assert {user for user, _ in ended} == {"a", "b"}
            gate.set()
            await until(lambda: len(ended) == 15)
            for user in ("slow", "a", "b"):
                assert [n for own, n in ended if own == user] == list(range(5))

    asyncio.run(test())


def test_calls_of_a_slow_key_are_deferred_other_keys_continue_and_none_is_lost(
    bootstrap: str,
) -> None:
    app = App("crowd", partitions=1)
    gate, ended = asyncio.Event(), []

    @app.task(key=lambda user: user)
    async def step(user: str, n: int) -> None:
        if user == "slow" and n == 0:
            await gate.wait()
        ended.append((user, n))

    async def test() -> None:
        log = KafkaLog(bootstrap)
        limits = {"held_records_max": "100", "read_records_max": "70"}
        async with app.connect(log), working(app, log, **limits) as worker:
            await app.send_records(step.record("slow", n) for n in range(200))
            await app.send_records(step.record("other", n) for n in range(50))
            await until(lambda: len(ended) == 50)
            assert worker.metrics.deferred > 100
            assert ended == [("other", n) for n in range(50)]
            gate.set()
            await until(lambda: len(ended) == 250)
            assert ended[50:] == [("slow", n) for n in range(200)]

    asyncio.run(test())


def test_the_next_worker_runs_the_calls_that_a_worker_deferred(bootstrap: str) -> None:
    app = App("legacy", partitions=1)
    gate, ended = asyncio.Event(), []

    @app.task(key=lambda user: user)
    async def step(user: str, n: int) -> None:
        if user == "slow":
            await gate.wait()
        ended.append((user, n))

    async def test() -> None:
        log = KafkaLog(bootstrap)
        limits = {"held_records_max": "60", "read_records_max": "70", "stop_grace_ms": "0"}
        async with app.connect(log):
            for user in ("slow", "other"):
                await app.send_records(step.record(user, n) for n in range(100))
            async with working(app, log, **limits):
                await until(lambda: len(ended) == 100)
            gate.set()
            async with working(app, log, **limits):
                await until(lambda: len(ended) == 200)
        assert ended == [(user, n) for user in ("other", "slow") for n in range(100)]

    asyncio.run(test())


def test_more_calls_run_at_once_than_there_are_partitions(bootstrap: str) -> None:
    app = App("wide", partitions=1)
    may_end, begun, ended, at_once = asyncio.Semaphore(0), [], [], []

    @app.task
    async def wait(n: int) -> None:
        begun.append(n)
        at_once.append(len(begun) - len(ended))
        await may_end.acquire()
        ended.append(n)

    async def test() -> None:
        log = KafkaLog(bootstrap)
        async with app.connect(log), working(app, log, concurrency="50"):
            await app.send_records(wait.record(n) for n in range(80))
            await until(lambda: len(begun) >= 50)
            for count in range(51, 81):
                may_end.release()
                await until(lambda count=count: len(begun) >= count)
            for _ in range(50):
                may_end.release()
            await until(lambda: len(ended) == 80)
            assert max(at_once) == 50

    asyncio.run(test())


def test_the_next_worker_does_not_repeat_calls_that_finished_after_a_slow_one(
    bootstrap: str,
) -> None:
    app = App("gaps", partitions=1)
    ran: Counter[int] = Counter()
    hang = True

    @app.task
    async def step(n: int) -> None:
        ran[n] += 1
        if n == 3 and hang:
            await asyncio.sleep(3600)

    async def test() -> None:
        nonlocal hang
        log = KafkaLog(bootstrap)
        async with app.connect(log):
            async with working(app, log, stop_grace_ms="0") as worker:
                for n in range(10):
                    await step.send(n)
                await until(lambda: worker.metrics.tasks["step"].done == 9)
            hang = False
            async with working(app, log) as worker:
                await until(lambda: worker.metrics.tasks["step"].done == 1)
            assert ran == {n: 2 if n == 3 else 1 for n in range(10)}

    asyncio.run(test())


def test_stopping_finishes_running_calls_commits_and_leaves_the_group(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = App("stopping", partitions=2)
    started, stopping, ended = asyncio.Event(), asyncio.Event(), []
    finish = ConsumerSession.finish

    async def finish_and_signal(session: ConsumerSession) -> None:
        stopping.set()
        await finish(session)

    monkeypatch.setattr(ConsumerSession, "finish", finish_and_signal)

    @app.task
    async def work(n: int) -> None:
        started.set()
        await stopping.wait()
        ended.append(n)

    async def test() -> None:
        log = KafkaLog(bootstrap)
        async with app.connect(log):
            async with working(app, log):
                await work.send(1)
                await asyncio.wait_for(started.wait(), SECONDS)
            assert ended == [1]
            # The next member does not wait for a session timeout and repeats nothing.
            async with working(app, log):
                await work.send(2)
                await until(lambda: ended == [1, 2])

    asyncio.run(test())


def test_partitions_move_between_workers_without_loss_and_in_order(bootstrap: str) -> None:
    app = App("moving", partitions=8)
    ended: list[tuple[str, int]] = []

    @app.task(key=lambda user: user)
    async def step(user: str, n: int) -> None:
        await asyncio.sleep(0.005)
        ended.append((user, n))

    async def test() -> None:
        log = KafkaLog(bootstrap)
        async with app.connect(log), working(app, log):
            for n in range(10):
                await app.send_records(step.record(f"u{user}", n) for user in range(8))
            async with working(app, log):
                for n in range(10, 20):
                    await app.send_records(step.record(f"u{user}", n) for user in range(8))
            for n in range(20, 30):
                await app.send_records(step.record(f"u{user}", n) for user in range(8))
            await until(lambda: len(set(ended)) == 240)
        for user in range(8):
            numbers = [n for own, n in ended if own == f"u{user}"]
            assert list(dict.fromkeys(numbers)) == list(range(30))

    asyncio.run(test())


def test_an_effectively_once_call_has_its_effect_once_and_a_failed_one_never(
    bootstrap: str,
) -> None:
    app = App("effects", partitions=2)
    effects = TopicSpec("effects.made", 2, "", "")

    @app.task(effectively_once=True, retry=NO_RETRY)
    async def make(n: int) -> None:
        await app.send_records([Record(effects.name, None, str(n).encode())])
        if n % 5 == 0:
            raise ValueError("after it had sent")

    async def test() -> None:
        log = KafkaLog(bootstrap)
        await log.admin.ensure_topics([effects])
        async with app.connect(log), working(app, log) as worker:
            await app.send_records(make.record(n) for n in range(50))
            await until(lambda: worker.metrics.tasks["make"].started == 50)
        found: Counter[int] = Counter()
        async for batch in read_stretch(log, await log.admin.spans(effects.name)):
            found.update(int(record.value or b"-1") for record in batch)
        assert found == {n: 1 for n in range(50) if n % 5}
        assert len(await read_dead_letters(log, "effects")) == 10

    asyncio.run(test())


def test_calls_of_an_aborted_transaction_never_run_and_those_of_a_committed_one_do(
    bootstrap: str,
) -> None:
    app = App("outbox", partitions=2)
    ran: list[str] = []

    @app.task
    async def follow(order: str) -> None:
        ran.append(order)

    async def test() -> None:
        log = KafkaLog(bootstrap)
        async with app.connect(log), working(app, log):
            writer = await log.open_writer(WriterOptions(transactional_id="orders"))
            with contextlib.suppress(ZeroDivisionError):
                async with writer.transaction():
                    await writer.send([follow.record("aborted")])
                    raise ZeroDivisionError
            async with writer.transaction():
                await writer.send([follow.record("committed")])
            await until(lambda: ran)
            await writer.close()
        assert ran == ["committed"]

    asyncio.run(test())


def test_plain_functions_run_in_threads_and_their_time_limit_reaches_them(bootstrap: str) -> None:
    app = App("threads", partitions=1)
    names: list[str] = []
    released, never = threading.Event(), asyncio.Event()

    @app.task(time_limit_s=0.3, retry=NO_RETRY)
    def spin(forever: bool) -> None:
        names.append(threading.current_thread().name)
        while forever and not released.wait(0.01):
            pass

    @app.task(time_limit_s=0.2, retry=Retry(attempts=1))
    async def sleep() -> None:
        await never.wait()

    async def test() -> None:
        log = KafkaLog(bootstrap)
        async with app.connect(log), working(app, log) as worker:
            await spin.send(False)
            await spin.send(True)
            await sleep.send()
            try:
                await until(lambda: sum(worker.metrics.dead_reasons.values()) == 2)
                assert worker.abandoned_threads == 0
            finally:
                released.set()
        letters = (await read_dead_letters(log, "threads")).values()
        assert sorted(one.task or "" for one in letters) == ["sleep", "spin"]
        assert all("TimeLimitExceeded" in one.failure for one in letters)
        assert all(name.startswith("task-") for name in names)

    asyncio.run(test())
