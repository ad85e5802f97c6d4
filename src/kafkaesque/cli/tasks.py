"""`kafkaesque tasks`: runs workers and timers; manages dead letters and pending timers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from kafkaesque.cli.failures import usage
from kafkaesque.cli.options import client_options, examples, json_option
from kafkaesque.cli.render import Column, Screen
from kafkaesque.cli.tasks_dlq import dlq
from kafkaesque.cli.tasks_jobs import chat_jobs, mail_catcher
from kafkaesque.cli.tasks_options import DATA_DEFAULT, read_config, run_worker, server_options
from kafkaesque.cli.tasks_timer import timer

if TYPE_CHECKING:
    from kafkaesque.admin.connection import ClusterConnection


_SETTING_COLUMNS = [
    Column("name", "SETTING"),
    Column("default", "DEFAULT"),
    Column("doc", "MEANING"),
]


@click.group()
def tasks() -> None:
    """Run tasks from the log, with timers, retries and dead letters.

    APP is MODULE:NAME of an `App`, as in shop.tasks:app; the current directory is searched first.
    See docs/TASKS.md.
    """


@tasks.command(
    epilog=examples(
        "kafkaesque tasks worker shop:app",
        "kafkaesque tasks worker shop:app --name worker-1 --queue mail --set concurrency=500",
        "kafkaesque tasks worker shop:app --timers       # workers and timers in one process",
    )
)
@click.argument("app")
@click.option("--queue", "queues", multiple=True,
              help="Run only this queue; may be repeated.  [default: all queues of the application]")  # fmt: skip
@click.option("--name", help="Name of this worker; after a restart with the same name it resumes its "
              "unfinished calls at once.  [default: from host and process]")  # fmt: skip
@click.option("--timers", is_flag=True, help="Also run the timers, like `tasks timers`.")
@server_options
@client_options()
def worker(connection: ClusterConnection, screen: Screen, app: str, **options: Any) -> None:
    """Run the calls of an application until Ctrl-C or SIGTERM.

    On SIGTERM it finishes running calls, commits, and leaves its group at once. Prints one line
    `ready ...` when it has joined the group.
    """
    from kafkaesque.service.logs import set_up_logs
    from kafkaesque.tasks.process import AppNotFound, load_app

    set_up_logs("text", options.pop("log_level"))
    config = read_config(options.pop("assignments"))
    try:
        loaded = load_app(app)
    except AppNotFound as error:
        raise usage(str(error)) from None
    connection.reach()
    data = options.pop("data") or DATA_DEFAULT / f"tasks-{loaded.name}"
    run_worker(connection, screen, loaded, config=config, data=data, **options)


@tasks.command(
    epilog=examples(
        "kafkaesque tasks timers",
        "kafkaesque tasks timers --data /var/lib/kafkaesque/timers --set timers.tick.ms=10",
    )
)
@click.option(
    "--name",
    help="Name of this process in the coordination service.  [default: from host and process]",
)
@server_options
@client_options()
def timers(connection: ClusterConnection, screen: Screen, **options: Any) -> None:
    """Run the timers of all applications: fire each once, when it is due.

    Several processes share the partitions of the timers by election. A process that takes over a
    partition continues from the log and its own file.
    """
    from kafkaesque.cli.service_process import host_port, run_service
    from kafkaesque.service.logs import set_up_logs
    from kafkaesque.tasks.process import TimersOptions, serve_timers

    set_up_logs("text", options.pop("log_level"))
    config = read_config(options.pop("assignments"))
    connection.reach()
    data = options.pop("data") or DATA_DEFAULT / "timers"
    wanted = TimersOptions(
        bootstrap=connection.bootstrap,
        properties=connection.properties,
        config=config,
        data=data,
        http_listen=host_port(options.pop("http_listen")),
        **options,
    )
    summary = run_service(serve_timers(wanted))
    text = f"stopped after {summary['fired']} timers"
    click.echo(json.dumps(summary) if screen.as_json else text)


@tasks.command(
    epilog=examples("kafkaesque tasks settings", "kafkaesque tasks settings --jobs --json")
)
@click.option("--jobs", is_flag=True, help="List the settings of the chat jobs instead.")
@json_option
def settings(screen: Screen, jobs: bool) -> None:
    """List the settings of workers and timers, or of the chat jobs."""
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
