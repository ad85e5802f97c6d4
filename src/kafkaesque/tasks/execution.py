"""Runs one attempt of a call: its context, the middleware around it, its time limit, its outcome.

A middleware gets the running call and the next inner step:

    async def timed(running: Running, inner: Inner) -> object:
        started = time.perf_counter()
        try:
            return await inner(running)
        finally:
            report(running.task.name, time.perf_counter() - started)

It may return another value, raise (Reject, RetryLater, anything), or not call `inner` at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import msgspec

from kafkaesque.client.ports import Record
from kafkaesque.model.clock import Clock
from kafkaesque.tasks.errors import Reject, RetryLater, TimeLimitExceeded
from kafkaesque.tasks.rules.call import TaskCall
from kafkaesque.tasks.rules.outcome import CallFailure, Dead, DeadReason, Done, Outcome, RetryAfter
from kafkaesque.tasks.rules.task import DeclaredTask
from kafkaesque.tasks.rules.trace_context import TraceSpan
from kafkaesque.tasks.thread_pool import ThreadPool


@dataclass(slots=True)
class Running:
    """One attempt in progress, as middleware and the task itself see it."""

    call: TaskCall
    task: DeclaredTask
    arguments: dict[str, object]
    span: TraceSpan | None = None
    outputs: list[Record] = field(default_factory=list)
    """For an effectively-once task: the records it sent, which are written only if it succeeds."""

    @property
    def id(self) -> str:
        return self.call.id

    @property
    def attempt(self) -> int:
        return self.call.attempt


_running: ContextVar[Running | None] = ContextVar("kafkaesque_task", default=None)


def current() -> Running | None:
    """The call that runs in this context; None outside of a task."""
    return _running.get()


Inner = Callable[[Running], Awaitable[Any]]
Middleware = Callable[[Running, Inner], Awaitable[Any]]


def make_chain(middleware: Sequence[Middleware], innermost: Inner) -> Inner:
    """Composes the middleware into one callable, the first outermost."""
    chain = innermost
    for one in reversed(middleware):
        chain = _around(one, chain)
    return chain


def _around(middleware: Middleware, inner: Inner) -> Inner:
    async def call(running: Running) -> Any:
        return await middleware(running, inner)

    return call


class Invocation:
    """The innermost step: runs the function, on the event loop or in a thread, within its time limit."""

    def __init__(self, threads: ThreadPool) -> None:
        self._threads = threads

    async def __call__(self, running: Running) -> Any:
        task = running.task
        _running.set(running)
        limit_s = task.policy.time_limit_s
        if not task.is_async:
            return await self._threads.run(lambda: task.invoke(running.arguments), limit_s)
        if limit_s is None:
            return await task.invoke(running.arguments)
        return await _within(limit_s, task.invoke(running.arguments))


async def _within(limit_s: float, work: Awaitable[Any]) -> Any:
    limit = asyncio.timeout(limit_s)
    try:
        async with limit:
            return await work
    except TimeoutError:
        if limit.expired():
            raise TimeLimitExceeded(f"ran longer than {limit_s:g} s") from None
        raise


class AttemptRunner:
    """The outermost step: turns whatever happens into an outcome. Raises only cancellations."""

    def __init__(self, chain: Inner, clock: Clock, chance: Callable[[], float]) -> None:
        self._chain = chain
        self._clock = clock
        self._chance = chance

    async def __call__(self, running: Running) -> Outcome:
        call, task = running.call, running.task
        expires_ms = call.message.expires_ms
        if expires_ms is not None and self._clock.wall_ms() > expires_ms:
            failure = CallFailure("Expired", f"did not start before {expires_ms}")
            return Dead(DeadReason.EXPIRED, failure)
        try:
            return Done(await self._chain(running))
        except Exception as error:  # noqa: BLE001 - supervisor: it becomes the call's outcome
            return self._failed(call, task, error)

    def _failed(self, call: TaskCall, task: DeclaredTask, error: Exception) -> Outcome:
        retry = task.policy.retry
        failure = CallFailure.of(error)
        if isinstance(error, Reject) or not retry.covers(error):
            return Dead(DeadReason.REJECTED, failure)
        if call.attempt >= retry.attempts:
            return Dead(DeadReason.EXHAUSTED, failure)
        if isinstance(error, RetryLater):
            return RetryAfter(max(0.0, error.delay_s), failure, retry.ordered)
        return RetryAfter(retry.delay_s(call.attempt, self._chance()), failure, retry.ordered)


def read_arguments(task: DeclaredTask, call: TaskCall) -> dict[str, Any] | Dead:
    """The arguments of the call, upgraded to the task's version, or why the call cannot be made."""
    version, declared = call.message.version, task.policy.version
    try:
        if version == declared:
            return task.arguments.decode(call.message.args)
        arguments = msgspec.json.decode(call.message.args)
        while version != declared:
            upgrade = task.policy.upgrades.get(version)
            if upgrade is None:
                text = f"{task.name} has version {version}; this worker has {declared}"
                return Dead(DeadReason.UNKNOWN_VERSION, CallFailure("UnknownVersion", text))
            arguments = upgrade(arguments)
            version += 1
        return task.arguments.convert(arguments)
    except Exception as error:  # noqa: BLE001 - supervisor of an upgrade, which is the application's code
        # The call becomes a dead letter with this cause.
        return Dead(DeadReason.WRONG_ARGUMENTS, CallFailure.of(error))
