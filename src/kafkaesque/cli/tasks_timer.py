"""`kafkaesque tasks timer`: lists and cancels pending timers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kafkaesque.cli.failures import TargetNotFound
from kafkaesque.cli.options import client_options, examples
from kafkaesque.cli.render import Column, Screen, iso_time
from kafkaesque.cli.tasks_dlq import run_with_log

if TYPE_CHECKING:
    from kafkaesque.admin.connection import ClusterConnection
    from kafkaesque.client.kafka import KafkaLog

_COLUMNS = [
    Column("id", "ID"),
    Column("due_at", "DUE"),
    Column("task", "TASK"),
    Column("queue", "QUEUE"),
    Column("cron", "CRON"),
]


@click.group()
def timer() -> None:
    """List and cancel pending timers, including crons."""


@timer.command("ls", epilog=examples("kafkaesque tasks timer ls",
                                     "kafkaesque tasks timer ls --limit 1000 --json"))  # fmt: skip
@click.option("--limit", type=click.IntRange(min=1), default=100, show_default=True,
              help="Maximum number of timers, in order of their due time.")  # fmt: skip
@client_options()
def list_timers(connection: ClusterConnection, screen: Screen, limit: int) -> None:
    """List pending timers in order of their due time. Reads the whole topic."""
    rows: list[dict[str, Any]] = run_with_log(connection, lambda log: _pending(log, limit))
    screen.document(rows, lambda: screen.table(_COLUMNS, rows, "no timers are pending"))


@timer.command(epilog=examples("kafkaesque tasks timer cancel unread/m-17"))
@click.argument("timer_id", metavar="ID")
@client_options()
def cancel(connection: ClusterConnection, screen: Screen, timer_id: str) -> None:
    """Cancel a timer or a cron by its id. A cron that an application declares returns when the
    application starts again."""
    found = run_with_log(connection, lambda log: _cancel(log, timer_id))
    if not found:
        raise TargetNotFound(f"no timer {timer_id} is pending", "`tasks timer ls` lists them")
    screen.document({"cancelled": timer_id}, lambda: screen.line(f"{timer_id} cancelled"))


async def _pending(log: KafkaLog, limit: int) -> list[dict[str, Any]]:
    from kafkaesque.tasks.timers.listing import read_pending

    return [
        {
            "id": one.id,
            "due_at": iso_time(one.due_ms),
            "due_ms": one.due_ms,
            "task": one.task,
            "queue": one.queue,
            "cron": one.cron,
        }
        for one in await read_pending(log, limit)
    ]


async def _cancel(log: KafkaLog, timer_id: str) -> bool:
    from kafkaesque.tasks.timers.listing import cancel_pending

    return await cancel_pending(log, timer_id)
