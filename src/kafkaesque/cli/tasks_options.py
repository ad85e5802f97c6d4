"""Shared parts of the server commands of `kafkaesque tasks`: options, and running a worker."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kafkaesque.cli.failures import usage
from kafkaesque.cli.options import log_level_option
from kafkaesque.cli.server_settings import read_service_settings

if TYPE_CHECKING:
    from kafkaesque.admin.connection import ClusterConnection
    from kafkaesque.cli.render import Screen
    from kafkaesque.tasks.app import App
    from kafkaesque.tasks.config import TasksConfig

F = TypeVar("F", bound=Callable[..., Any])

DATA_DEFAULT = Path("kafkaesque-data")
COORDINATION_DEFAULT = "127.0.0.1:2181"
COORDINATION_VARIABLE = "KAFKAESQUE_COORDINATION"


def server_options(function: F) -> F:
    """Options of all server commands of `kafkaesque tasks`."""
    for option in (
        click.option("--data", type=click.Path(file_okay=False, path_type=Path),
                     help="Directory of state, pid and ports.  [default: kafkaesque-data/...]"),
        click.option("--http-listen", metavar="HOST:PORT", default="127.0.0.1:0", show_default=True,
                     help="Address of /metrics, /status, /healthz and /readyz."),
        click.option("--zookeeper-connect", "zookeeper", metavar="HOST:PORT[,...]",
                     envvar=COORDINATION_VARIABLE, default=COORDINATION_DEFAULT, show_default=True,
                     show_envvar=True, help="Coordination service, where processes elect the owners of partitions."),
        click.option("--set", "assignments", multiple=True, metavar="NAME=VALUE",
                     help="Any setting of `tasks settings`; may be repeated."),
        click.option("--end-with-stdin", is_flag=True, hidden=True, help="For supervisors."),
        log_level_option(),
    ):  # fmt: skip
        function = option(function)
    return function


def read_config(assignments: tuple[str, ...]) -> TasksConfig:
    from kafkaesque.tasks.config import TasksConfig

    return read_service_settings(TasksConfig, assignments, listing="`tasks settings`")


def run_worker(
    connection: ClusterConnection, screen: Screen, app: App, queues: tuple[str, ...], **options: Any
) -> None:
    """Run a worker of `app` and print its summary."""
    from kafkaesque.cli.service_process import host_port, run_service
    from kafkaesque.tasks.process import WorkerOptions, serve_worker

    unknown = set(queues) - set(app.queues)
    if unknown:
        known = ", ".join(app.queues)
        raise usage(f"{app.name} has no queue '{min(unknown)}'; its queues are {known}.")
    wanted = WorkerOptions(
        bootstrap=connection.bootstrap,
        properties=connection.properties,
        app=app,
        queues=queues,
        http_listen=host_port(options.pop("http_listen")),
        **options,
    )
    summary = run_service(serve_worker(wanted))
    abandoned = summary.pop("abandoned_threads")
    done = sum(one["done"] for one in summary["tasks"].values())
    click.echo(json.dumps(summary) if screen.as_json else f"stopped after {done} calls")
    if abandoned:
        # A thread that hangs in a C call would keep the interpreter from exiting.
        sys.stdout.flush()
        os._exit(0)
