"""Which call is running here: what `send` inside a task and logging need to know."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, field

from kafkaesque.client.ports import Record
from kafkaesque.tasks.rules.call import Call
from kafkaesque.tasks.task import Declared
from kafkaesque.tasks.trace import Span


@dataclass(slots=True)
class Running:
    """One attempt under way, as middleware and the task itself see it."""

    call: Call
    task: Declared
    arguments: dict[str, object]
    span: Span | None = None
    outputs: list[Record] = field(default_factory=list)
    """Of an effectively-once task: what it sent, written when and only if it succeeds."""

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


def enter(running: Running) -> None:
    """From here on, in this context and those made from it."""
    _running.set(running)
