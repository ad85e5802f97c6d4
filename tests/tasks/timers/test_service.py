"""Owners of timers on a real broker, elected in its coordination service."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.waiting import until

from kafkaesque.client.kafka import KafkaLog
from kafkaesque.client.reading import read_stretch
from kafkaesque.events import tasks as protocol
from kafkaesque.service.clock import SystemClock
from kafkaesque.tasks.app import App
from kafkaesque.tasks.config import tasks_config
from kafkaesque.tasks.timers.election import Elected
from kafkaesque.tasks.timers.listing import cancel_pending, read_pending
from kafkaesque.tasks.timers.service import TimerService
from kafkaesque.testing.broker_process import BrokerProcess

pytestmark = pytest.mark.story

SECONDS = 90.0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = {"flush": "never", "offsets.topic.num.partitions": 4,
                "coordination.listener": "127.0.0.1:0"}  # fmt: skip
    with BrokerProcess(tmp_path_factory.mktemp("broker"), settings) as running:
        yield running


def service(broker: BrokerProcess, name: str, directory: Path) -> TimerService:
    log = KafkaLog(broker.bootstrap_servers, client_id=name)
    election = Elected(broker.facts["coordination"], name)
    config = tasks_config({"timers.tick.ms": "20"})
    return TimerService(log, election, directory / name, SystemClock(), config)


async def calls(log: KafkaLog, topic: str) -> list[str]:
    found = []
    async for batch in read_stretch(log, await log.admin.spans(topic)):
        found += [protocol.decode_task(record.value).id for record in batch]
    return found


def test_two_processes_share_partitions_one_leaves_and_every_timer_fires_once(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    app = App("sharing")

    @app.task
    async def ring(n: int) -> None: ...

    async def test() -> None:
        log = KafkaLog(broker.bootstrap_servers)
        async with app.connect(log):
            first, second = service(broker, "one", tmp_path), service(broker, "two", tmp_path)
            runs = [asyncio.create_task(one.run()) for one in (first, second)]
            everything = frozenset(range(protocol.TIMERS.partitions))

            async def shared() -> bool:
                return (first.caught_up | second.caught_up) == everything and not (
                    first.owned & second.owned
                )

            await until(shared)
            for n in range(40):
                await ring.options(id=f"ring-{n}").send_after(0.5 + n / 20, n)
            await ring.options(id="never").send_after(3600, 1)
            await app.cancel("never")
            second.stop()
            await runs[1]

            async def all_rang() -> bool:
                return len(await calls(log, "tasks.sharing")) >= 40

            await until(all_rang)
            assert first.owned == everything
            assert sorted(await calls(log, "tasks.sharing")) == sorted(
                f"ring-{n}" for n in range(40)
            )
            await ring.options(id="month").send_after(30 * 86400, 1)

            async def listed() -> bool:
                return [one.id for one in await read_pending(log, 10)] == ["month"]

            await until(listed)
            assert await cancel_pending(log, "month")
            assert not await cancel_pending(log, "month")
            first.stop()
            await runs[0]

    asyncio.run(test())
