"""An application's tasks, and the way to call them. Running them is the worker's business."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, ParamSpec, TypeVar, overload

from kafkaesque.client.ports import Log, LogError, LogWriter, Record, WriterOptions
from kafkaesque.events import tasks as words
from kafkaesque.events.topics import TopicSpec
from kafkaesque.model.clock import Clock
from kafkaesque.model.ids import TimestampMs
from kafkaesque.tasks import system
from kafkaesque.tasks.chain import Middleware
from kafkaesque.tasks.composing import (
    Composed,
    Options,
    cancellation,
    compose,
    time_ms,
)
from kafkaesque.tasks.errors import TaskError, TaskRefused
from kafkaesque.tasks.listening import Listener
from kafkaesque.tasks.results import ResultReader
from kafkaesque.tasks.rules.retry import Retry
from kafkaesque.tasks.running import current
from kafkaesque.tasks.task import Declared, Policy, Upgrade
from kafkaesque.tasks.timers.cron import CronEntry, check_rule
from kafkaesque.tasks.trace import child_of

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Sent:
    """A call that is in the log. `id` cancels it while it is a timer."""

    id: str
    task: str
    app: App

    async def result(self, timeout_s: float = 30.0) -> Any:
        """What the task returned. TaskFailed if it was given up, ResultUnknown after `timeout_s`."""
        return await self.app.results.wait(self.id, timeout_s)


class Task(Generic[P, R]):
    """A function that can also be sent. Called directly, it is the function."""

    def __init__(self, app: App, declared: Declared, options: Options | None = None) -> None:
        self._app = app
        self.declared = declared
        self._options = options or Options()

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
        """The same task, to be called with these."""
        return Task(self._app, self.declared, Options(id, key, expires_s, dict(headers or {})))

    async def send(self, *args: P.args, **kwargs: P.kwargs) -> Sent:
        """Returns when the call is in the log; inside an effectively-once task, with its success."""
        composed = self._compose(args, kwargs)
        if self.declared.policy.keeps_result:
            await self._app.results.expect(composed.id)
        return await self._send(composed.id, composed.record())

    async def send_after(self, delay_s: float, /, *args: P.args, **kwargs: P.kwargs) -> Sent:
        composed = self._compose(args, kwargs)
        due_ms = composed.sent_ms + round(delay_s * 1000)
        return await self._send(composed.id, composed.timer(due_ms))

    async def send_at(self, when: datetime | int, /, *args: P.args, **kwargs: P.kwargs) -> Sent:
        """`when`: with a zone, or milliseconds since the epoch."""
        composed = self._compose(args, kwargs)
        return await self._send(composed.id, composed.timer(time_ms(when)))

    def record(self, *args: P.args, **kwargs: P.kwargs) -> Record:
        """The call as a record, for a writer of your own: inside its transaction it is an outbox."""
        return self._compose(args, kwargs).record()

    def timer(self, when: datetime | int, /, *args: P.args, **kwargs: P.kwargs) -> Record:
        """The call at a time as a record, for a writer of your own."""
        return self._compose(args, kwargs).timer(time_ms(when))

    def _compose(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Composed:
        named = self.declared.arguments.bind(args, kwargs)
        return self._app.compose(self.declared, named, self._options)

    async def _send(self, call_id: str, record: Record) -> Sent:
        await self._app.send_records([record])
        return Sent(call_id, self.name, self._app)


class App:
    """Names its tasks, its queues and what surrounds every call.

    name: also the default queue and the consumer group `tasks.NAME` of its workers.
    """

    def __init__(self, name: str, *, clock: Clock | None = None, partitions: int = 8) -> None:
        _check_queue(name)
        self.name = name
        self.clock: Clock = clock or system.SystemClock()
        self.partitions = partitions
        self.tasks: dict[str, Declared] = {}
        self.middleware: list[Middleware] = []
        """Around every call, the first outermost. See `chain.Middleware`."""
        self.listeners: list[Listener] = []
        self.crons: dict[str, CronEntry] = {}
        self.resources: list[Callable[[Log], contextlib.AbstractAsyncContextManager[object]]] = []
        """What a worker opens before its first call and closes after its last."""
        self.results = ResultReader(words.results_topic(name))
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

    def task(self, *function: Callable[..., Any], **said: Any) -> Any:
        """Declare a task, plain `@app.task` or with a policy (`task.Policy` says what each means)."""
        if function:
            return self._declare(function[0], {})
        return lambda decorated: self._declare(decorated, said)

    def _declare(self, function: Callable[P, R], said: dict[str, Any]) -> Task[P, R]:
        name = said.pop("name", None) or function.__name__
        queue = said.pop("queue", None) or self.name
        _check_queue(queue)
        if name in self.tasks:
            raise ValueError(f"there are two tasks {name!r}")
        said["upgrades"] = said.get("upgrades") or {}
        policy = Policy(queue=queue, **said)
        self.tasks[name] = Declared.of(name, function, policy)
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
        """Call `task` by a cron expression. `misfire`: what happens to times at which nothing ran:
        `skip` them, run `once` for all of them, or run `all`."""
        rule = words.CronRule(expression, timezone, misfire)
        check_rule(rule)
        label = name or task.name
        if label in self.crons:
            raise ValueError(f"there are two crons {label!r}: name them")
        named = task.declared.arguments.bind(args, kwargs)
        task.declared.arguments.encode(named)
        self.crons[label] = CronEntry(f"cron/{self.name}/{label}", task.declared, named, rule)

    def listen(self, listener: Listener) -> None:
        """Have workers turn records of another topic into calls, each exactly once."""
        self.listeners.append(listener)

    @property
    def queues(self) -> list[str]:
        return sorted({self.name, *(task.policy.queue for task in self.tasks.values())})

    def topics(self) -> list[TopicSpec]:
        """All that its workers and callers need."""
        specs = [
            spec for queue in self.queues for spec in words.queue_topics(queue, self.partitions)
        ]
        specs += [words.TIMERS]
        if any(task.policy.keeps_result for task in self.tasks.values()):
            specs.append(words.results_topic(self.name))
        return specs

    # -- calling ----------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def connect(self, log: Log) -> AsyncIterator[App]:
        """Tasks can be sent inside. Topics that are absent are created."""
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
        """What is sent inside goes by `writer`; for those that have one already."""
        before, self._writer = self._writer, writer
        self.results.attach(log)
        try:
            yield
        finally:
            self._writer = before

    async def cancel(self, call_id: str) -> None:
        """Cancel a call that waits for its time. One that has fired cannot be called back."""
        await self.send_records([cancellation(call_id, self.clock.wall_ms())])

    def cancel_record(self, call_id: str) -> Record:
        return cancellation(call_id, self.clock.wall_ms())

    def compose(self, task: Declared, named: dict[str, Any], options: Options) -> Composed:
        running = current()
        parent = None if running is None else running.span
        span = child_of(parent, system.new_id(), system.new_span_id())
        return compose(task, named, options, (system.new_id(), span, self.clock.wall_ms()))

    async def send_records(self, records: Iterable[Record]) -> None:
        """Write, or, inside an effectively-once task, have them written with its success."""
        running = current()
        if running is not None and running.task.policy.effectively_once:
            running.outputs.extend(records)
            return
        if self._writer is None:
            raise LogError("the application is not connected: async with app.connect(log)")
        await self._writer.send(records)

    def cron_records(self, now_ms: TimestampMs) -> list[Record]:
        """The declarations of all crons, for the owners of the timers."""
        records = []
        for entry in self.crons.values():
            composed = self.compose(entry.task, entry.named, Options(id=entry.id))
            composed = dataclasses.replace(composed, headers=())
            records.append(composed.timer(now_ms, entry.rule))
        return records


RESERVED_QUEUES = ("timers", "relays")
"""Their topics are the platform's own."""


def _check_queue(name: str) -> None:
    if name in RESERVED_QUEUES:
        raise TaskRefused(f"{name!r} is no name for a queue: it is taken")
    if not words.QUEUE_NAME.fullmatch(name):
        raise TaskRefused(
            f"{name!r} is no name for a queue: up to 64 of a-z, 0-9, _ and -, beginning with a "
            "letter or digit"
        )
