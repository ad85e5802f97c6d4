"""`kafkaesque show`: trends, gateways and the event log of the console, in the terminal.

Reads a console's JSON API. Everything else that the console shows has its own command: `top`, `topic`,
`group`, `consume`, `broker-admin`, `coord`, `tasks`, `pipeline status`, `status`.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from kafkaesque.cli.failures import CannotConnect, CommandFailure
from kafkaesque.cli.options import examples, json_option, running_data_option
from kafkaesque.cli.render import Column, Screen, iso_time
from kafkaesque.console.api_client import (
    CONSOLE_DEFAULT,
    ConsoleClient,
    ConsoleRefused,
    ConsoleUnavailable,
)
from kafkaesque.console.operator_password import PASSWORD_VARIABLE

F = TypeVar("F", bound=Callable[..., Any])

CONSOLE_VARIABLE = "KAFKAESQUE_CONSOLE"


def console_options(function: F) -> F:
    """Add --console, --data and --json; pass `api` and `screen`."""

    @click.option("--console", "url", metavar="URL", envvar=CONSOLE_VARIABLE, show_envvar=True,
                  help=f"URL of the console.  [default: from --data, or {CONSOLE_DEFAULT}]")  # fmt: skip
    @running_data_option
    @json_option
    @functools.wraps(function)
    def wrapper(url: str | None, data: Path, **options: Any) -> Any:
        try:
            api = ConsoleClient(url, data, os.environ.get(PASSWORD_VARIABLE, ""))
        except ValueError as error:
            raise CommandFailure(str(error), "write http://HOST:PORT") from None
        try:
            return function(api=api, **options)
        except ConsoleRefused as error:
            raise CommandFailure(
                str(error),
                f"a private console needs its operator's password in {PASSWORD_VARIABLE}",
            ) from None
        except ConsoleUnavailable as error:
            raise CannotConnect(
                str(error),
                "`kafkaesque up` and `kafkaesque console` start one; --console URL selects another",
            ) from None

    return wrapper  # type: ignore[return-value]


@click.group(
    epilog=examples(
        "kafkaesque show trends",
        "kafkaesque show gateways --json | jq .figures",
        "kafkaesque show events --kind election",
    )
)
def show() -> None:
    """Show trends, gateways and events of the console."""


@show.command(
    epilog=examples(
        "kafkaesque show trends --rows 5",
        "kafkaesque show trends --json | jq -r '.tags[].hashtag'",
    )
)
@click.option("--rows", type=click.IntRange(1, 20), default=10, show_default=True,
              help="Maximum number of hashtags.")  # fmt: skip
@console_options
def trends(api: ConsoleClient, screen: Screen, rows: int) -> None:
    """Show trending hashtags: those with the most posts in the latest window."""
    found = api.get("/api/trends")
    columns = [
        Column("hashtag", "hashtag"),
        Column("posts", "posts", "count"),
        Column("recent", "last minute", "count"),
        Column("authors", "authors", "count"),
        Column("burst", "burst", "count"),
    ]
    empty = "no trends yet: the Spark job trends-live computes them"
    screen.document(found, lambda: screen.table(columns, found["tags"][:rows], empty))


@show.command(
    epilog=examples(
        "kafkaesque show gateways",
        "kafkaesque show gateways --json | jq '.figures.connections'",
    )
)
@console_options
def gateways(api: ConsoleClient, screen: Screen) -> None:
    """Show the live gateways and their total figures."""
    found = api.get("/api/gateways")

    def draw() -> None:
        screen.fields([(name.replace("_", " "), _rounded(value))
                       for name, value in found["figures"].items() if value is not None])  # fmt: skip
        screen.line()
        rows = [{"id": row["id"], "facts": _facts(row["facts"])} for row in found["registered"]]
        columns = [Column("id", "gateway"), Column("facts", "facts", style="dim")]
        screen.table(columns, rows, found["coordination_error"] or "no gateway is registered")

    screen.document(found, draw)


def _rounded(value: float) -> float | int:
    return int(value) if value == int(value) else round(value, 1)


def _facts(facts: dict[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in facts.items())


@show.command(
    epilog=examples(
        "kafkaesque show events",
        "kafkaesque show events --kind fault            # what was killed, paused, restarted",
        "kafkaesque show events --json | jq -r '.events[].text'",
    )
)
@click.option("--kind", default="", help="Show only one kind: election, broker, replicas, topic, config, "
              "group, lag, operator, fault.")  # fmt: skip
@click.option("--rows", type=click.IntRange(1, 500), default=50, show_default=True,
              help="Maximum number of events.")  # fmt: skip
@console_options
def events(api: ConsoleClient, screen: Screen, kind: str, rows: int) -> None:
    """Show the event log, oldest first: elections, joins, changes, operators' actions."""
    found = api.get("/api/events", kind=kind)
    table = [
        {**event, "at": iso_time(int(event["at_s"] * 1000))} for event in found["events"][:rows]
    ]
    columns = [Column("at", "at"), Column("kind", "kind"), Column("text", "what")]
    screen.document(found, lambda: screen.table(columns, table[::-1], "no events yet"))
