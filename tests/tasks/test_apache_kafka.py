"""The same guarantees on Apache Kafka: a few of the tests of `test_worker`, and the timers."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.waiting import until

from kafkaesque.client.dead_letters import DeadLetterQueue
from kafkaesque.client.kafka import KafkaLog
from kafkaesque.client.ports import Record
from kafkaesque.client.reading import read_stretch
from kafkaesque.events.topics import TopicSpec
from kafkaesque.service.clock import SystemClock
from kafkaesque.tasks import App, Retry, current
from kafkaesque.tasks.config import TasksConfig
from kafkaesque.tasks.timers.election import Alone
from kafkaesque.tasks.timers.service import TimerService
from kafkaesque.tasks.worker import Worker
from kafkaesque.testing.apache_kafka import ApacheKafka
from kafkaesque.testing.maven import JavaUnavailable

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(400)]

SECONDS = 180.0


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    settings = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "4",
                "transaction.state.log.num.partitions": "4"}  # fmt: skip
    try:
        kafka = ApacheKafka(settings=settings, heap="512m")
        kafka.start()
    except JavaUnavailable as error:
        pytest.skip(f"no Apache Kafka to compare with: {error}")
    try:
        yield kafka.bootstrap_servers
    finally:
        kafka.stop()


def test_order_retries_transactions_timers_and_dead_letters_on_apache_kafka(
    bootstrap: str, tmp_path: Path
) -> None:
    app = App("apache", partitions=2)
    effects = TopicSpec("apache.effects", 1, "", "")
    ran: list[tuple[str, int]] = []
    rang: Counter[int] = Counter()
    works: list[bool] = []

    @app.task(key=lambda user: user)
    async def step(user: str, n: int) -> None:
        ran.append((user, n))

    @app.task(effectively_once=True, retry=Retry(2, 0.1, 1.0, 0.1))
    async def effect(n: int) -> None:
        await app.send_records([Record(effects.name, None, str(n).encode())])
        running = current()
        if n == 3 and running is not None and running.attempt == 1:
            raise ValueError("after it had sent")

    @app.task
    async def ring(n: int) -> None:
        rang[n] += 1

    @app.task(retry=Retry(attempts=1))
    async def fragile() -> None:
        if not works:
            raise ValueError("broken")
        works.append(True)

    async def test() -> None:
        log = KafkaLog(bootstrap)
        await log.admin.ensure_topics([effects])
        async with app.connect(log):
            worker = Worker(app, log)
            service = TimerService(log, Alone(), tmp_path, SystemClock(), TasksConfig())
            runs = [asyncio.create_task(one) for one in (worker.run(), service.run())]
            for n in range(10):
                await app.send_records([step.record("a", n), step.record("b", n), effect.record(n)])
                await ring.send_after(0.5, n)
            await ring.options(id="never").send_after(3600, 99)
            await app.cancel("never")
            await fragile.send()
            await until(lambda: len(ran) == 20 and sum(rang.values()) == 10)
            await until(lambda: worker.metrics.tasks["effect"].done == 10)
            await until(lambda: worker.metrics.tasks["fragile"].dead == 1)
            for user in ("a", "b"):
                assert [n for own, n in ran if own == user] == list(range(10))
            assert rang == dict.fromkeys(range(10), 1)
            works.append(True)
            async with DeadLetterQueue.open(log, "apache") as letters:
                await letters.redrive(list((await letters.read()).values()))
                assert await letters.read() == {}
            await until(lambda: len(works) == 2)
            worker.stop()
            service.stop()
            await asyncio.gather(*runs)
        found: Counter[int] = Counter()
        async for batch in read_stretch(log, await log.admin.spans(effects.name)):
            found.update(int(record.value or b"-1") for record in batch)
        assert found == dict.fromkeys(range(10), 1)

    asyncio.run(test())
