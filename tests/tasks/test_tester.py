"""The guarantees of tasks, on the log in memory and the virtual clock: days of waiting take seconds."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from kafkaesque.client.ports import Record
from kafkaesque.events import tasks as protocol
from kafkaesque.tasks import (
    NO_RETRY,
    App,
    Reject,
    Retry,
    RetryLater,
    Running,
    TaskFailed,
    TaskRefused,
    TaskTester,
    current,
)
from kafkaesque.tasks.tester import START_MS

QUICK = Retry(attempts=3, first_s=10, factor=10, most_s=1000, jitter=False)


def run(test: Any) -> None:
    asyncio.run(test())


def test_a_call_runs_with_its_arguments_and_defaults() -> None:
    app = App("shop")

    @app.task
    async def greet(name: str, times: int = 2) -> None: ...

    async def test() -> None:
        async with TaskTester(app) as tester:
            await greet.send("ann")
            await greet.send(name="bob", times=3)
            await tester.settle()
            calls = sorted(tester.done("greet"), key=lambda call: str(call["name"]))
            assert calls == [{"name": "ann", "times": 2}, {"name": "bob", "times": 3}]

    run(test)


def test_wrong_arguments_are_refused_before_anything_is_sent() -> None:
    app = App("shop")

    @app.task
    async def greet(name: str, times: int = 2) -> None: ...

    async def test() -> None:
        async with TaskTester(app) as tester:
            for args in ((1,), ("a", "b"), (), ("a", 1, 2)):
                with pytest.raises(TaskRefused):
                    await greet.send(*args)
            with pytest.raises(TaskRefused, match="zone"):
                await greet.send_at(datetime(2026, 1, 1), "ann")
            with pytest.raises(TaskRefused, match="ten years"):
                await greet.send_after(11 * 366 * 86400, "ann")
            await tester.settle()
            assert tester.attempts == []

    run(test)


def test_24_hours_pass_in_milliseconds_and_a_cancelled_call_never_runs() -> None:
    app = App("shop")

    @app.task
    async def remind(user: str) -> None: ...

    async def test() -> None:
        async with TaskTester(app) as tester:
            await remind.send_after(24 * 3600, "ann")
            bob = await remind.send_after(24 * 3600, "bob")
            await remind.send_at(datetime.fromtimestamp(START_MS / 1000 + 3600, UTC), "carl")
            await tester.advance(hours=23, minutes=59)
            assert [call["user"] for call in tester.done("remind")] == ["carl"]
            await app.cancel(bob.id)
            started_s = time.process_time()
            await tester.advance(minutes=1)
            assert time.process_time() - started_s < 5
            assert [call["user"] for call in tester.done("remind")] == ["carl", "ann"]
            assert tester.attempts[-1].at_ms == START_MS + 24 * 3_600_000
            await tester.advance(days=30)
            assert len(tester.attempts) == 2

    run(test)


def test_failures_are_retried_with_growing_delays_and_then_given_up_with_the_cause() -> None:
    app = App("shop")

    @app.task(retry=QUICK)
    async def charge(cents: int) -> None:
        raise ConnectionError("the bank is closed")

    async def test() -> None:
        async with TaskTester(app) as tester:
            sent = await charge.send(5)
            await tester.advance(hours=1)
            times = [(one.attempt, one.at_ms - START_MS) for one in tester.attempts]
            assert times == [(1, 0), (2, 10_000), (3, 110_000)]
            (letter,) = await tester.dead_letters()
            assert (letter.task, letter.call_id, letter.attempts) == ("charge", sent.id, 3)
            assert letter.reason == "exhausted"
            assert letter.failure == "ConnectionError: the bank is closed"
            assert "in charge" in letter.trace
            assert letter.origin.startswith("tasks.shop/")
            assert letter.first_failure_ms == START_MS

    run(test)


def test_a_delay_longer_than_every_tier_becomes_a_timer() -> None:
    app = App("shop")

    @app.task(
        retry=Retry(attempts=2, first_s=7200, most_s=7200, jitter=False), key=lambda user: user
    )
    async def visit(user: str) -> None:
        if len(app.tasks) and not visits:
            visits.append(user)
            raise ValueError("nobody home")

    visits: list[str] = []

    async def test() -> None:
        async with TaskTester(app) as tester:
            await visit.send("ann")
            await tester.advance(hours=3)
            assert [(one.attempt, one.at_ms - START_MS) for one in tester.attempts] == [
                (1, 0), (2, 7_200_000)
            ]  # fmt: skip
            assert tester.done("visit") == [{"user": "ann"}]

    run(test)


def test_a_task_may_choose_its_retry_delay_or_reject_the_call() -> None:
    app = App("shop")

    @app.task(retry=QUICK)
    async def odd(kind: str) -> None:
        if kind == "later" and current().attempt == 1:  # type: ignore[union-attr]
            raise RetryLater(3.0)
        if kind == "never":
            raise Reject("do not")

    @app.task(retry=Retry(attempts=5, never_on=(KeyError,)))
    async def picky() -> None:
        raise KeyError("x")

    async def test() -> None:
        async with TaskTester(app) as tester:
            await odd.send("later")
            await odd.send("never")
            await picky.send()
            await tester.advance(minutes=10)
            assert [one.at_ms - START_MS for one in tester.attempts if one.arguments.get("kind") == "later"] == [0, 3000]  # fmt: skip
            assert (
                sorted(letter.reason for letter in await tester.dead_letters()) == ["rejected"] * 2
            )

    run(test)


def test_a_poison_call_blocks_no_other_and_an_ordered_one_only_its_key() -> None:
    app = App("shop")

    @app.task(key=lambda user: user, retry=Retry(3, 60, 1.0, 60, jitter=False, ordered=True))
    async def step(user: str, n: int) -> None:
        if user == "poison":
            raise ValueError("bad")
        if user == "slow" and n == 0 and current().attempt < 3:  # type: ignore[union-attr]
            raise ValueError("not yet")

    async def test() -> None:
        async with TaskTester(app) as tester:
            for n in range(3):
                for user in ("poison", "slow", "fine"):
                    await step.send(user, n)
            await tester.settle()
            assert {(call["user"], call["n"]) for call in tester.done("step")} == {
                ("fine", 0), ("fine", 1), ("fine", 2)
            }  # fmt: skip
            await tester.advance(minutes=30)
            assert [call["n"] for call in tester.done("step") if call["user"] == "slow"] == [
                0,
                1,
                2,
            ]
            poison = [(one.arguments["n"], one.attempt) for one in tester.attempts
                      if one.arguments["user"] == "poison"]  # fmt: skip
            assert poison == [(n, attempt) for n in range(3) for attempt in (1, 2, 3)]
            assert len(await tester.dead_letters()) == 3

    run(test)


def test_bad_input_becomes_dead_letters_and_good_input_runs() -> None:
    app = App("shop")

    @app.task(version=2)
    async def greet(name: str) -> None: ...

    def call(task: str, args: bytes, version: int = 2, expires_ms: int | None = None) -> bytes:
        raw = msgspec.Raw(args)
        message = protocol.TaskMessage("i", task, raw, START_MS, version, expires_ms)  # type: ignore[arg-type]
        return protocol.encode_message(message)

    bad = {
        b"\xff\xfe{": "unreadable",
        b"[1,2]": "unreadable",
        b"": "unreadable",
        call("nobody", b"{}"): "unknown-task",
        call("greet", b'{"name":"x"}', version=1): "unknown-version",
        call("greet", b'{"name":"x"}', version=9): "unknown-version",
        call("greet", b'{"name":7}'): "wrong-arguments",
        call("greet", b'{"name":"x","more":1}'): "wrong-arguments",
        call("greet", b'{"name":"x"}', expires_ms=START_MS - 1): "expired",
    }

    async def test() -> None:
        async with TaskTester(app) as tester:
            writer = await tester.log.open_writer()
            headers = (("attempt", b"many"), ("due-ms", b"-4"), ("traceparent", b"\xff"))
            await writer.send(
                [Record("tasks.shop", b"k", value, headers) for value in [*bad, None]]  # type: ignore[list-item]
            )
            await greet.send("ann")
            await tester.settle()
            assert tester.done("greet") == [{"name": "ann"}]
            letters = await tester.dead_letters()
            assert sorted(one.reason for one in letters) == sorted([*bad.values(), "unreadable"])
            assert {one.value for one in letters} == {*bad, b""}

    run(test)


def test_arguments_of_an_older_version_are_upgraded() -> None:
    app = App("shop")

    @app.task(
        version=3,
        upgrades={1: lambda old: {"name": old["user"]}, 2: lambda old: {**old, "loud": True}},
    )
    async def greet(name: str, loud: bool) -> None: ...

    async def test() -> None:
        async with TaskTester(app) as tester:
            raw = msgspec.Raw(b'{"user":"ann"}')
            message = protocol.TaskMessage("i", "greet", raw, START_MS)  # type: ignore[arg-type]
            await app.send_records([Record("tasks.shop", None, protocol.encode_message(message))])
            await tester.settle()
            assert tester.done("greet") == [{"name": "ann", "loud": True}]

    run(test)


def test_records_of_an_effectively_once_task_are_visible_only_if_it_succeeds() -> None:
    app = App("shop")

    @app.task(effectively_once=True, retry=QUICK)
    async def order(n: int) -> None:
        await mail.send(n)
        await app.send_records([Record("orders", None, str(n).encode())])
        if current().attempt == 1:  # type: ignore[union-attr]
            raise ValueError("after it had sent")

    @app.task
    async def mail(n: int) -> None: ...

    async def test() -> None:
        async with TaskTester(app) as tester:
            from kafkaesque.events.topics import TopicSpec

            await tester.log.admin.ensure_topics([TopicSpec("orders", 1, "", "")])
            await order.send(1)
            await tester.settle()
            assert tester.records("orders") == []
            await tester.advance(minutes=10)
            assert [record.value for record in tester.records("orders")] == [b"1"]
            assert tester.done("mail") == [{"n": 1}]

    run(test)


def test_cron_runs_at_its_times_in_its_zone() -> None:
    app = App("shop")

    @app.task
    async def report(kind: str) -> None: ...

    app.cron("0 9 * * *", report, "daily", name="daily", timezone="Europe/Berlin")

    async def test() -> None:
        async with TaskTester(app) as tester:
            await tester.advance(days=3)
            times = [datetime.fromtimestamp(one.at_ms / 1000, UTC) for one in tester.attempts]
            assert [(moment.hour, moment.minute) for moment in times] == [(8, 0)] * 3
            assert len({moment.date() for moment in times}) == 3

    run(test)


def test_a_result_is_the_return_value_or_the_failure() -> None:
    app = App("shop")

    @app.task(keeps_result=True, retry=NO_RETRY)
    def divide(a: int, b: int) -> float:
        return a / b

    async def test() -> None:
        async with TaskTester(app) as tester:
            good, bad = await divide.send(6, 4), await divide.send(1, 0)
            await tester.settle()
            assert await good.result(5) == 1.5
            with pytest.raises(TaskFailed, match="ZeroDivisionError"):
                await bad.result(5)

    run(test)


def test_middleware_surrounds_every_call_outermost_first() -> None:
    app = App("shop")
    order: list[str] = []

    def named(name: str) -> Any:
        async def middleware(running: Running, inner: Any) -> Any:
            order.append(f"{name} before {running.task.name}")
            try:
                return await inner(running)
            finally:
                order.append(f"{name} after")

        return middleware

    app.middleware += [named("outer"), named("inner")]

    @app.task
    async def work() -> None:
        order.append("work")

    async def test() -> None:
        async with TaskTester(app) as tester:
            await work.send()
            await tester.settle()
        assert order == [
            "outer before work", "inner before work", "work", "inner after", "outer after"
        ]  # fmt: skip

    run(test)


def test_a_trace_continues_through_sent_calls_and_retries() -> None:
    app = App("shop")
    seen: list[tuple[str, int, str]] = []

    def note() -> None:
        running = current()
        assert running is not None
        assert running.span is not None
        seen.append((running.task.name, running.attempt, running.span.trace_id))

    @app.task(retry=QUICK)
    async def first() -> None:
        note()
        if current().attempt == 1:  # type: ignore[union-attr]
            raise ValueError
        await second.send_after(3600)

    @app.task
    async def second() -> None:
        note()

    async def test() -> None:
        async with TaskTester(app) as tester:
            await first.send()
            await tester.advance(hours=2)
        assert [(name, attempt) for name, attempt, _ in seen] == [("first", 1), ("first", 2), ("second", 1)]  # fmt: skip
        assert len({trace for _, _, trace in seen}) == 1

    run(test)
