"""What surrounds every call: policies in the shape of an onion. The worker knows the result only.

A middleware gets the call and what lies inside it:

    async def timed(running: Running, inner: Inner) -> object:
        started = time.perf_counter()
        try:
            return await inner(running)
        finally:
            report(running.task.name, time.perf_counter() - started)

It may return another value, raise (Reject, RetryLater, anything), or not go on at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from kafkaesque.model.clock import Clock
from kafkaesque.tasks.errors import Reject, RetryLater
from kafkaesque.tasks.rules import outcome as reasons
from kafkaesque.tasks.rules.call import Call
from kafkaesque.tasks.rules.outcome import Again, Dead, Done, Failure, Outcome
from kafkaesque.tasks.running import Running, enter
from kafkaesque.tasks.task import Declared
from kafkaesque.tasks.threads import Threads

Inner = Callable[[Running], Awaitable[Any]]
Middleware = Callable[[Running, Inner], Awaitable[Any]]


def make_chain(middleware: Sequence[Middleware], innermost: Inner) -> Inner:
    """One callable that goes through all of them, the first outermost."""
    chain = innermost
    for one in reversed(middleware):
        chain = _around(one, chain)
    return chain


def _around(middleware: Middleware, inner: Inner) -> Inner:
    async def call(running: Running) -> Any:
        return await middleware(running, inner)

    return call


class Invocation:
    """The innermost: run the function, on the loop or in a thread, within its time limit."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads

    async def __call__(self, running: Running) -> Any:
        task = running.task
        enter(running)
        limit_s = task.policy.time_limit_s
        if not task.is_async:
            return await self._threads.run(lambda: task.invoke(running.arguments), limit_s)
        if limit_s is None:
            return await task.invoke(running.arguments)
        return await _within(limit_s, task.invoke(running.arguments))


async def _within(limit_s: float, working: Awaitable[Any]) -> Any:
    from kafkaesque.tasks.errors import TimeLimitExceeded

    limit = asyncio.timeout(limit_s)
    try:
        async with limit:
            return await working
    except TimeoutError:
        if limit.expired():
            raise TimeLimitExceeded(f"ran longer than {limit_s:g} s") from None
        raise


class Judge:
    """The outermost: reads the arguments, and turns what happens into an outcome. Never raises
    anything but a cancellation."""

    def __init__(self, chain: Inner, clock: Clock, chance: Callable[[], float]) -> None:
        self._chain = chain
        self._clock = clock
        self._chance = chance

    async def __call__(self, running: Running) -> Outcome:
        call, task = running.call, running.task
        expires_ms = call.message.expires_ms
        if expires_ms is not None and self._clock.wall_ms() > expires_ms:
            return Dead(reasons.EXPIRED, Failure("Expired", f"not begun before {expires_ms}"))
        try:
            return Done(await self._chain(running))
        except Exception as error:  # noqa: BLE001 - supervisor: it becomes the call's outcome
            return self._judge(call, task, error)

    def _judge(self, call: Call, task: Declared, error: Exception) -> Outcome:
        retry = task.policy.retry
        failure = Failure.of(error)
        if isinstance(error, Reject) or not retry.covers(error):
            return Dead(reasons.REJECTED, failure)
        if call.attempt >= retry.attempts:
            return Dead(reasons.EXHAUSTED, failure)
        if isinstance(error, RetryLater):
            return Again(max(0.0, error.delay_s), failure, retry.ordered)
        return Again(retry.delay_s(call.attempt, self._chance()), failure, retry.ordered)


def read_arguments(task: Declared, call: Call) -> dict[str, Any] | Dead:
    """What the function gets, brought up to its version; or why this call cannot be made."""
    version, known = call.message.version, task.policy.version
    try:
        if version == known:
            return task.arguments.decode(call.message.args)
        named = msgspec.json.decode(call.message.args)
        while version != known:
            upgrade = task.policy.upgrades.get(version)
            if upgrade is None:
                text = f"{task.name} of version {version}; this worker has {known}"
                return Dead(reasons.UNKNOWN_VERSION, Failure("UnknownVersion", text))
            named = upgrade(named)
            version += 1
        return task.arguments.convert(named)
    except Exception as error:  # noqa: BLE001 - supervisor of an upgrade, which is the application's code
        # The call becomes a dead letter that says why.
        return Dead(reasons.WRONG_ARGUMENTS, Failure.of(error))
