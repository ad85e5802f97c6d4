"""Options that the server commands of `kafkaesque tasks` share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kafkaesque.cli.server_settings import read_service_settings

if TYPE_CHECKING:
    from kafkaesque.tasks.config import TasksConfig

F = TypeVar("F", bound=Callable[..., Any])

DATA_DEFAULT = Path("kafkaesque-data")
COORDINATION_DEFAULT = "127.0.0.1:2181"
COORDINATION_VARIABLE = "KAFKAESQUE_COORDINATION"


def server_options(function: F) -> F:
    """What every server process of the tasks takes."""
    for option in (
        click.option("--data", type=click.Path(file_okay=False, path_type=Path),
                     help="Directory of pid, ports and state.  [default: kafkaesque-data/...]"),
        click.option("--http-listen", metavar="HOST:PORT", default="127.0.0.1:0", show_default=True,
                     help="Address of /metrics, /status, /healthz and /readyz."),
        click.option("--zookeeper-connect", "zookeeper", metavar="HOST:PORT[,...]",
                     envvar=COORDINATION_VARIABLE, default=COORDINATION_DEFAULT, show_default=True,
                     show_envvar=True, help="Coordination service, for the election of owners."),
        click.option("--set", "assignments", multiple=True, metavar="NAME=VALUE",
                     help="Any setting of `tasks settings`; may be repeated."),
        click.option("--end-with-stdin", is_flag=True, hidden=True, help="For supervisors."),
        click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]),
                     default="warning", show_default=True),
    ):  # fmt: skip
        function = option(function)
    return function


def read_config(assignments: tuple[str, ...]) -> TasksConfig:
    from kafkaesque.tasks.config import TasksConfig

    return read_service_settings(TasksConfig, assignments, listing="`tasks settings`")
