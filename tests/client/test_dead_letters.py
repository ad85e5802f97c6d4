"""Listing, redriving and dropping dead letters, on the log in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from kafkaesque.client import dead_letters as module
from kafkaesque.client.dead_letters import (
    DeadLetterCounts,
    DeadLetterQueue,
    LetterSelection,
    LetterUnknown,
    RedriveRefused,
)
from kafkaesque.client.ports import Log, Record, TopicUnknown, WriterFenced
from kafkaesque.events import tasks as protocol
from kafkaesque.events.topics import TopicSpec
from kafkaesque.tasks import NO_RETRY, App, TaskRefused, TaskTester
from kafkaesque.tasks.listener import Listener

Test = Callable[[], Coroutine[Any, Any, None]]


def run(test: Test) -> None:
    asyncio.run(test())


def fragile_app() -> tuple[App, Any, list[bool]]:
    """An application whose only task fails until the list is not empty."""
    app = App("shop")
    works: list[bool] = []

    @app.task(retry=NO_RETRY, key=lambda n: str(n))
    async def fragile(n: int) -> None:
        if not works:
            raise ValueError("broken")

    return app, fragile, works


async def redrive_all(log: Log, queue: str) -> module.Redrive:
    async with DeadLetterQueue.open(log, queue) as letters:
        return await letters.redrive(list((await letters.read()).values()))


def test_a_redriven_call_runs_as_a_first_attempt_and_its_letter_ends() -> None:
    app, fragile, works = fragile_app()

    async def test() -> None:
        async with TaskTester(app) as tester:
            for n in range(3):
                await fragile.send(n)
            await tester.settle()
            counts = DeadLetterCounts(tester.log, "shop", app.tasks, "unknown")
            assert await counts.update() == {"fragile": 3}
            works.append(True)
            async with DeadLetterQueue.open(tester.log, "shop") as letters:
                found = list((await letters.read()).values())
                await letters.redrive(found[:2])
                assert await counts.update() == {"fragile": 1}
                await letters.drop(found[2:])
            assert await counts.update() == {}
            await tester.settle()
            assert len(tester.done("fragile")) == 2
            assert {one.attempt for one in tester.attempts} == {1}
            assert await tester.dead_letters() == []

    run(test)


def test_letters_are_selected_by_id_task_and_reason() -> None:
    app, fragile, _ = fragile_app()

    async def test() -> None:
        async with TaskTester(app) as tester:
            await fragile.send(1)
            await app.send_records([Record("tasks.shop", None, b"not a call")])
            await tester.settle()
            letters = {one.task: one for one in await tester.dead_letters()}
            call, junk = letters["fragile"], letters[None]

            async def ids(selection: LetterSelection) -> set[str]:
                return set(await module.read_dead_letters(tester.log, "shop", selection))

            assert await ids(module.ALL_LETTERS) == {call.id, junk.id}
            assert await ids(LetterSelection(ids=[junk.id])) == {junk.id}
            assert await ids(LetterSelection(task="fragile")) == {call.id}
            assert await ids(LetterSelection(reason=junk.reason)) == {junk.id}
            assert await ids(LetterSelection(ids=[junk.id], task="fragile")) == set()
            with pytest.raises(LetterUnknown, match="shop has no dead letter x/0/1"):
                await ids(LetterSelection(ids=[junk.id, "x/0/1"]))

    run(test)


def test_a_queue_that_does_not_exist_cannot_be_opened() -> None:
    app, _, _ = fragile_app()

    async def test() -> None:
        async with TaskTester(app) as tester:
            with pytest.raises(TopicUnknown):
                async with DeadLetterQueue.open(tester.log, "nowhere"):
                    pass

    run(test)


def test_a_redriven_call_is_the_record_that_was_sent() -> None:
    """The same key, value, trace and sender's headers; nothing of the failure but its origin."""
    app, fragile, _ = fragile_app()

    async def test() -> None:
        async with TaskTester(app) as tester:
            await fragile.options(headers={"tenant": "acme"}).send(7)
            await tester.settle()
            done = await redrive_all(tester.log, "shop")
            assert len(done.redriven) == 1
            sent, again = tester.records("tasks.shop")
            assert (again.key, again.value) == (sent.key, sent.value)
            assert dict(again.headers) == {
                **dict(sent.headers),
                protocol.ORIGIN: f"tasks.shop/{sent.partition}/{sent.offset}".encode(),
            }

    run(test)


def test_headers_of_the_sender_survive_a_retry() -> None:
    app = App("shop")

    @app.task
    async def fails() -> None:
        raise ValueError("broken")

    async def test() -> None:
        async with TaskTester(app) as tester:
            await fails.options(headers={"tenant": "acme"}).send()
            await tester.settle()
            (retry,) = tester.records("tasks.shop.retry.5s")
            assert dict(retry.headers)["tenant"] == b"acme"
            with pytest.raises(TaskRefused, match="headers take"):
                await fails.options(headers={"tenant": "x" * 20_000}).send()

    run(test)


def test_a_second_redrive_finds_nothing_to_do() -> None:
    app, fragile, works = fragile_app()

    async def test() -> None:
        async with TaskTester(app) as tester:
            await fragile.send(1)
            await tester.settle()
            works.append(True)
            assert len((await redrive_all(tester.log, "shop")).redriven) == 1
            assert (await redrive_all(tester.log, "shop")).redriven == []
            await tester.settle()
            assert len(tester.done("fragile")) == 1

    run(test)


def test_of_two_operators_the_later_one_fences_the_earlier_one() -> None:
    app, fragile, _ = fragile_app()

    async def test() -> None:
        async with TaskTester(app) as tester:
            await fragile.send(1)
            await tester.settle()
            async with DeadLetterQueue.open(tester.log, "shop") as earlier:
                seen = list((await earlier.read()).values())
                assert len((await redrive_all(tester.log, "shop")).redriven) == 1
                with pytest.raises(WriterFenced):
                    await earlier.redrive(seen)
            assert len(tester.records("tasks.shop")) == 2

    run(test)


def test_a_letter_about_another_topic_is_skipped_and_reported() -> None:
    app, fragile, _ = fragile_app()
    orders = TopicSpec("orders", 1, "", "")

    def follow(_record: object) -> list[Record]:
        raise ValueError("not an order")

    app.listen(Listener("orders", orders, follow, "shop"))

    async def test() -> None:
        async with TaskTester(app) as tester:
            await fragile.send(1)
            await app.send_records([Record(orders.name, None, b"?")])
            await tester.settle()
            done = await redrive_all(tester.log, "shop")
            assert [one.task for one in done.redriven] == ["fragile"]
            assert [one.id for one in done.skipped] == ["orders/0/0"]
            assert len(tester.records(orders.name)) == 1
            with pytest.raises(RedriveRefused, match="orders/0/0"):
                await redrive_all(tester.log, "shop")
            async with DeadLetterQueue.open(tester.log, "shop") as letters:
                await letters.drop(list((await letters.read()).values()))
                assert await letters.read() == {}

    run(test)


@pytest.mark.parametrize(("limit", "value"), [("BATCH_LETTERS", 2), ("BATCH_BYTES_MAX", 1)])
def test_a_large_redrive_is_several_transactions(
    monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    monkeypatch.setattr(module, limit, value)
    app, fragile, _ = fragile_app()

    async def test() -> None:
        async with TaskTester(app) as tester:
            for n in range(5):
                await fragile.send(n)
            await tester.settle()
            letters = list((await module.read_dead_letters(tester.log, "shop")).values())
            sizes = [len(batch) for batch in module._batches(letters)]
            assert sizes == ([2, 2, 1] if limit == "BATCH_LETTERS" else [1] * 5)
            assert len((await redrive_all(tester.log, "shop")).redriven) == 5

    run(test)


def test_a_letter_whose_key_is_not_text_can_be_ended() -> None:
    app, _, _ = fragile_app()

    async def test() -> None:
        async with TaskTester(app) as tester:
            await app.send_records([Record("tasks.shop.dead", b"\xff\xfe", b"?")])
            async with DeadLetterQueue.open(tester.log, "shop") as letters:
                await letters.drop(list((await letters.read()).values()))
            assert await tester.dead_letters() == []

    run(test)
