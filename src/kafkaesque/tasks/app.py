"""An application: declares its tasks and sends calls of them. `worker` runs the calls."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, ParamSpec, TypeVar, overload

from kafkaesque.client.ports import Log, LogError, LogWriter, Record, WriterOptions
from kafkaesque.events import tasks as protocol
from kafkaesque.events.topics import TopicSpec
from kafkaesque.model.clock import Clock
from kafkaesque.model.ids import TimestampMs
from kafkaesque.service.clock import SystemClock
from kafkaesque.tasks import system
from kafkaesque.tasks.errors import TaskError, TaskRefused
from kafkaesque.tasks.execution import Middleware, current
from kafkaesque.tasks.listener import Listener
from kafkaesque.tasks.results import ResultReader
from kafkaesque.tasks.rules.call import (
    CallOptions,
    ComposedCall,
    cancellation,
    compose,
    time_ms,
)
from kafkaesque.tasks.rules.retry import Retry
from kafkaesque.tasks.rules.task import DeclaredTask, Policy, Upgrade
from kafkaesque.tasks.rules.trace_context import child_of
from kafkaesque.tasks.timers.cron import CronEntry, check_rule

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Sent:
    """A call that is in the log. Its `id` cancels it while it is a timer."""

    id: str
    task: str
    app: App

    async def result(self, timeout_s: float = 30.0) -> Any:
        """Returns the task's result. Raises TaskFailed if the call was given up, ResultUnknown after
        `timeout_s`."""
        return await self.app.results.wait(self.id, timeout_s)


class Task(Generic[P, R]):
    """A declared function. Calling it runs the function directly; `send` runs it on a worker."""

    def __init__(
        self, app: App, declared: DeclaredTask, options: CallOptions | None = None
    ) -> None:
        self._app = app
        self.declared = declared
        self._options = options or CallOptions()

    @property
    def name(self) -> str:
        return self.declared.name

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        value: R = self.declared.function(*args, **kwargs)
        return value

    def options(
        self,
        *,
        id: str | None = None,
        key: str | None = None,
        expires_s: float | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Task[P, R]:
        """The same task; calls that it sends have these options."""
        return Task(self._app, self.declared, CallOptions(id, key, expires_s, dict(headers or {})))

    async def send(self, *args: P.args, **kwargs: P.kwargs) -> Sent:
        """Returns when the call is in the log. Inside an effectively-once task it is written if and when
        that task succeeds."""
        composed = self._compose(args, kwargs)
        if self.declared.policy.keeps_result:
            await self._app.results.expect(composed.id)
        return await self._send(composed.id, composed.record())

    async def send_after(self, delay_s: float, /, *args: P.args, **kwargs: P.kwargs) -> Sent:
        composed = self._compose(args, kwargs)
        due_ms = composed.sent_ms + round(delay_s * 1000)
        return await self._send(composed.id, composed.timer(due_ms))

    async def send_at(self, when: datetime | int, /, *args: P.args, **kwargs: P.kwargs) -> Sent:
        """`when`: a datetime with a time zone, or milliseconds since the epoch."""
        composed = self._compose(args, kwargs)
        return await self._send(composed.id, composed.timer(time_ms(when)))

    def record(self, *args: P.args, **kwargs: P.kwargs) -> Record:
        """The call as a record for a writer of your own, for example inside its transaction."""
        return self._compose(args, kwargs).record()

    def timer(self, when: datetime | int, /, *args: P.args, **kwargs: P.kwargs) -> Record:
        """The call at a given time, as a record for a writer of your own."""
        return self._compose(args, kwargs).timer(time_ms(when))

    def _compose(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ComposedCall:
        arguments = self.declared.arguments.bind(args, kwargs)
        return self._app.compose(self.declared, arguments, self._options)

    async def _send(self, call_id: str, record: Record) -> Sent:
        await self._app.send_records([record])
        return Sent(call_id, self.name, self._app)


class App:
    """Declares tasks, queues, crons, listeners and middleware.

    `name` is also the default queue, and `tasks.NAME` the consumer group of its workers.
    """

    def __init__(self, name: str, *, clock: Clock | None = None, partitions: int = 8) -> None:
        _check_queue(name)
        self.name = name
        self.clock: Clock = clock or SystemClock()
        self.partitions = partitions
        self.tasks: dict[str, DeclaredTask] = {}
        self.middleware: list[Middleware] = []
        """Runs around every call, the first outermost. See `execution`."""
        self.listeners: list[Listener] = []
        self.crons: dict[str, CronEntry] = {}
        self.resources: list[Callable[[Log], contextlib.AbstractAsyncContextManager[object]]] = []
        """Context managers that a worker enters before its first call and leaves after its last."""
        self.results = ResultReader(protocol.results_topic(name))
        self._writer: LogWriter | None = None

    # -- declaring --------------------------------------------------------------------------------

    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...

    @overload
    def task(
        self,
        *,
        name: str | None = ...,
        queue: str | None = ...,
        key: Callable[..., str | None] | None = ...,
        retry: Retry = ...,
        time_limit_s: float | None = ...,
        version: int = ...,
        upgrades: Mapping[int, Upgrade] | None = ...,
        effectively_once: bool = ...,
        keeps_result: bool = ...,
        expires_s: float | None = ...,
    ) -> Callable[[Callable[P, R]], Task[P, R]]: ...

    def task(self, *function: Callable[..., Any], **options: Any) -> Any:
        """Declares a task, as `@app.task` or with options (see `rules.task.Policy`)."""
        if function:
            return self._declare(function[0], {})
        return lambda decorated: self._declare(decorated, options)

    def _declare(self, function: Callable[P, R], options: dict[str, Any]) -> Task[P, R]:
        name = options.pop("name", None) or function.__name__
        queue = options.pop("queue", None) or self.name
        _check_queue(queue)
        if name in self.tasks:
            raise ValueError(f"task {name!r} is declared twice")
        options["upgrades"] = options.get("upgrades") or {}
        policy = Policy(queue=queue, **options)
        self.tasks[name] = DeclaredTask.of(name, function, policy)
        return Task(self, self.tasks[name])

    def cron(
        self,
        expression: str,
        task: Task[..., Any],
        *args: Any,
        name: str | None = None,
        timezone: str = "UTC",
        misfire: str = "once",
        **kwargs: Any,
    ) -> None:
        """Calls `task` by a cron expression. `misfire` says what happens to missed times: `skip` them,
        run `once` for all of them, or run `all`."""
        rule = protocol.CronRule(expression, timezone, misfire)
        check_rule(rule)
        label = name or task.name
        if label in self.crons:
            raise ValueError(f"cron {label!r} is declared twice: give each a name")
        arguments = task.declared.arguments.bind(args, kwargs)
        task.declared.arguments.encode(arguments)
        self.crons[label] = CronEntry(f"cron/{self.name}/{label}", task.declared, arguments, rule)

    def listen(self, listener: Listener) -> None:
        """Workers will turn each record of another topic into calls, exactly once."""
        self.listeners.append(listener)

    @property
    def queues(self) -> list[str]:
        return sorted({self.name, *(task.policy.queue for task in self.tasks.values())})

    def topics(self) -> list[TopicSpec]:
        """All topics that workers and callers need."""
        specs = [
            spec for queue in self.queues for spec in protocol.queue_topics(queue, self.partitions)
        ]
        specs += [protocol.TIMERS]
        if any(task.policy.keeps_result for task in self.tasks.values()):
            specs.append(protocol.results_topic(self.name))
        return specs

    # -- calling ----------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def connect(self, log: Log) -> AsyncIterator[App]:
        """Tasks can be sent inside this context. Missing topics are created."""
        if self._writer is not None:
            raise TaskError("the application is connected already")
        await log.admin.ensure_topics(self.topics())
        writer = await log.open_writer(WriterOptions())
        with self.sending_by(writer, log):
            try:
                yield self
            finally:
                await self.results.close()
                await writer.close()

    @contextlib.contextmanager
    def sending_by(self, writer: LogWriter, log: Log) -> Any:
        """Calls that are sent inside this context use `writer`."""
        before, self._writer = self._writer, writer
        self.results.attach(log)
        try:
            yield
        finally:
            self._writer = before

    async def cancel(self, call_id: str) -> None:
        """Cancels a call that waits for its time. A timer that has fired cannot be cancelled."""
        await self.send_records([cancellation(call_id, self.clock.wall_ms())])

    def cancel_record(self, call_id: str) -> Record:
        return cancellation(call_id, self.clock.wall_ms())

    def compose(
        self, task: DeclaredTask, arguments: dict[str, Any], options: CallOptions
    ) -> ComposedCall:
        running = current()
        parent = None if running is None else running.span
        span = child_of(parent, system.new_id(), system.new_span_id())
        now_ms = self.clock.wall_ms()
        return compose(task, arguments, options, fresh_id=system.new_id(), span=span, now_ms=now_ms)

    async def send_records(self, records: Iterable[Record]) -> None:
        """Writes records. Inside an effectively-once task they are written if and when it succeeds."""
        running = current()
        if running is not None and running.task.policy.effectively_once:
            running.outputs.extend(records)
            return
        if self._writer is None:
            raise LogError("the application is not connected: async with app.connect(log)")
        await self._writer.send(records)

    def cron_records(self, now_ms: TimestampMs) -> list[Record]:
        """The declarations of all crons, for the timer owners."""
        records = []
        for entry in self.crons.values():
            composed = self.compose(entry.task, entry.arguments, CallOptions(id=entry.id))
            composed = dataclasses.replace(composed, headers=())
            records.append(composed.timer(now_ms, entry.rule))
        return records


RESERVED_QUEUES = ("timers", "relays")
"""The platform uses these names for topics of its own."""


def _check_queue(name: str) -> None:
    if name in RESERVED_QUEUES:
        raise TaskRefused(f"{name!r} cannot be the name of a queue: it is reserved")
    if not protocol.QUEUE_NAME.fullmatch(name):
        raise TaskRefused(
            f"{name!r} cannot be the name of a queue: use up to 64 of a-z, 0-9, _ and -, beginning "
            "with a letter or digit"
        )
