"""`kafkaesque tasks`: run workers and timers, look after dead letters and what waits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kafkaesque.cli.options import client_options, examples, json_option
from kafkaesque.cli.render import Column, Screen
from kafkaesque.cli.tasks_dlq import dlq
from kafkaesque.cli.tasks_jobs import chat_jobs, mail_catcher
from kafkaesque.cli.tasks_options import DATA_DEFAULT, read_config, server_options
from kafkaesque.cli.tasks_timer import timer

if TYPE_CHECKING:
    from kafkaesque.cli.client import Connection


_SETTING_COLUMNS = [
    Column("name", "SETTING"),
    Column("default", "DEFAULT"),
    Column("doc", "MEANING"),
]


@click.group()
def tasks() -> None:
    """Work off the log: tasks, timers, retries, dead letters.

    APP is MODULE:NAME of an `App`, as in shop.tasks:app; the current directory is searched first.
    docs/TASKS.md is the guide.
    """


@tasks.command(
    epilog=examples(
        "kafkaesque tasks worker shop:app",
        "kafkaesque tasks worker shop:app --name worker-1 --queue mail --set concurrency=500",
        "kafkaesque tasks worker shop:app --timers       # and keep the timers, in one process",
    )
)
@click.argument("app")
@click.option("--queue", "queues", multiple=True,
              help="Run this queue only; may be repeated.  [default: all of the application]")  # fmt: skip
@click.option("--name", help="Name of this worker; one that is restarted under its name takes over at "
              "once what it left open.  [default: by host and process]")  # fmt: skip
@click.option("--timers", is_flag=True, help="Also keep the timers, as `tasks timers` does.")
@server_options
@client_options()
def worker(connection: Connection, screen: Screen, app: str, **options: Any) -> None:
    """Run the calls of an application until Ctrl-C or SIGTERM.

    On SIGTERM it finishes what is under way, commits, and leaves its group at once. Prints one line
    `ready ...` when it has joined.
    """
    from kafkaesque.cli.logs import set_up_logs
    from kafkaesque.cli.tasks_run import WorkerWanted, load_app, run_worker

    set_up_logs("text", options.pop("log_level"))
    config = read_config(options.pop("assignments"))
    loaded = load_app(app)
    connection.reach()
    data = options.pop("data") or DATA_DEFAULT / f"tasks-{loaded.name}"
    run_worker(connection, WorkerWanted(app=loaded, config=config, data=data, **options), screen)


@tasks.command(
    epilog=examples(
        "kafkaesque tasks timers",
        "kafkaesque tasks timers --data /var/lib/kafkaesque/timers --set timers.tick.ms=10",
    )
)
@click.option("--name", help="Name of this process in the coordination service.")
@server_options
@client_options()
def timers(connection: Connection, screen: Screen, **options: Any) -> None:
    """Keep the timers of all applications: fire each when it is due, once.

    Run as many as you like: the partitions of the timers are shared out by election, and whoever takes
    one over goes on from the log and from its own file.
    """
    from kafkaesque.cli.logs import set_up_logs
    from kafkaesque.cli.tasks_run import TimersWanted, run_timers

    set_up_logs("text", options.pop("log_level"))
    config = read_config(options.pop("assignments"))
    connection.reach()
    data = options.pop("data") or DATA_DEFAULT / "timers"
    run_timers(connection, TimersWanted(config=config, data=data, **options), screen)


@tasks.command(
    epilog=examples("kafkaesque tasks settings", "kafkaesque tasks settings --jobs --json")
)
@click.option("--jobs", is_flag=True, help="Those of the chat's jobs instead.")
@json_option
def settings(screen: Screen, jobs: bool) -> None:
    """Name the settings of workers and timers, or of the chat's jobs."""
    from kafkaesque.tasks.config import TASKS_SETTINGS
    from kafkaesque.tasks.jobs.config import JOBS_SETTINGS

    rows = [
        {"name": one.name, "default": one.show(one.default), "doc": one.doc}
        for one in (JOBS_SETTINGS if jobs else TASKS_SETTINGS).values()
    ]
    screen.document(rows, lambda: screen.table(_SETTING_COLUMNS, rows))


tasks.add_command(dlq)
tasks.add_command(timer)
tasks.add_command(chat_jobs)
tasks.add_command(mail_catcher)
