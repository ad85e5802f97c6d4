"""Tasks off the log: declared as functions, sent as records, run in order per key, retried, given up.

    from kafkaesque.tasks import App, Retry

    app = App("shop")

    @app.task(key=lambda order_id: order_id, retry=Retry(attempts=5))
    async def charge(order_id: str, cents: int) -> None: ...

The guide is docs/TASKS.md. Only the client ports, the events and the model are known here: any Kafka
will do. Names are loaded when they are first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkaesque.tasks.app import App, Sent, Task
    from kafkaesque.tasks.errors import Reject, RetryLater, TaskFailed, TaskRefused
    from kafkaesque.tasks.rules.retry import NO_RETRY, Retry
    from kafkaesque.tasks.running import Running, current
    from kafkaesque.tasks.tester import TaskTester

__all__ = [
    "NO_RETRY",
    "App",
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
    "Running": "running",
    "current": "running",
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
