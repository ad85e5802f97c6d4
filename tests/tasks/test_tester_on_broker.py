"""The test kit over a real broker of this process, still on the virtual clock."""

from __future__ import annotations

import asyncio

from kafkaesque.client.ports import Received, Record
from kafkaesque.events.topics import TopicSpec
from kafkaesque.tasks import App, Retry
from kafkaesque.tasks.listener import Listener
from kafkaesque.tasks.tester import TaskTester
from kafkaesque.testing import Broker


def test_a_day_of_timers_retries_and_listeners_passes_on_a_broker_too() -> None:
    app = App("kit", partitions=2)
    orders = TopicSpec("kit.orders", 1, "", "")

    @app.task(key=lambda user: user)
    async def remind(user: str) -> None: ...

    @app.task(retry=Retry(attempts=2, first_s=2.0, jitter=0.0))
    async def fragile(is_mendable: bool) -> None:
        if not is_mendable or len(tester.failed("fragile")) < 1:
            raise ValueError("not yet")

    def follow(record: Received) -> list[Record]:
        return [remind.record((record.value or b"").decode())]

    app.listen(Listener("orders", orders, follow, "kit"))

    async def test() -> None:
        nonlocal tester
        with Broker() as broker:
            async with TaskTester(app, bootstrap_servers=broker.bootstrap_servers) as tester:
                await remind.send_after(24 * 3600, "ann")
                cancelled = await remind.send_after(24 * 3600, "eve")
                await app.cancel(cancelled.id)
                await fragile.send(True)
                await app.send_records([Record(orders.name, None, b"bob")])
                await tester.advance(hours=23)
                assert tester.done("remind") == [{"user": "bob"}]
                assert tester.done("fragile") == [{"is_mendable": True}]
                await fragile.send(False)
                await tester.advance(hours=2)
                assert tester.done("remind") == [{"user": "bob"}, {"user": "ann"}]
                (letter,) = await tester.dead_letters()
                assert (letter.task, letter.attempts) == ("fragile", 2)
                assert len(await tester.read_records("tasks.kit")) == 4

    tester: TaskTester
    asyncio.run(test())
