"""A task queue on a Kafka log: functions that are called through records.

    from kafkaesque.tasks import App, Retry

    app = App("shop")

    @app.task(key=lambda order_id: order_id, retry=Retry(attempts=5))
    async def charge(order_id: str, cents: int) -> None: ...

A caller writes a record (`app`); a worker (`worker`) joins a consumer group (`session`), decides which call
runs next (`rules.scheduler`), runs it (`execution`) and writes what follows from its outcome (`rules.outcome`):
a retry, a dead letter, a result. `timers` keeps calls until they are due. The guide is docs/TASKS.md.

The public names below are imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkaesque.tasks.app import App, Sent, Task
    from kafkaesque.tasks.errors import Reject, RetryLater, TaskFailed, TaskRefused
    from kafkaesque.tasks.execution import Running, current
    from kafkaesque.tasks.listener import Listener
    from kafkaesque.tasks.rules.retry import NO_RETRY, Retry
    from kafkaesque.tasks.tester import TaskTester

__all__ = [
    "NO_RETRY",
    "App",
    "Listener",
    "Reject",
    "Retry",
    "RetryLater",
    "Running",
    "Sent",
    "Task",
    "TaskFailed",
    "TaskRefused",
    "TaskTester",
    "current",
]

_HOMES = {
    "App": "app",
    "Sent": "app",
    "Task": "app",
    "Listener": "listener",
    "Running": "execution",
    "current": "execution",
    "Reject": "errors",
    "RetryLater": "errors",
    "TaskFailed": "errors",
    "TaskRefused": "errors",
    "NO_RETRY": "rules.retry",
    "Retry": "rules.retry",
    "TaskTester": "tester",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value
