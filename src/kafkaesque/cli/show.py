"""`kafkaesque show`: trends, gateways and the event log of the console, in the terminal.

Reads a console's JSON API. Everything else that the console shows has its own command: `top`, `topic`,
`group`, `consume`, `broker-admin`, `coord`, `tasks`, `pipeline status`, `status`.
"""

from __future__ import annotations

import contextlib
import functools
import http.client
import json
import os
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode

import click

from kafkaesque.cli.console import PASSWORD_VARIABLE, password_path
from kafkaesque.cli.failures import CannotConnect, CommandFailure
from kafkaesque.cli.options import data_option, examples, json_option
from kafkaesque.cli.render import Column, Screen, iso_time
from kafkaesque.service.process import read_facts

F = TypeVar("F", bound=Callable[..., Any])

CONSOLE_VARIABLE = "KAFKAESQUE_CONSOLE"
CONSOLE_DEFAULT = "http://127.0.0.1:8080"
TIMEOUT_S = 10


class ConsoleClient:
    """The API of one console, found by its URL or by the data directory of the `up` that runs it."""

    def __init__(self, url: str | None, data: Path) -> None:
        home = data / "console"
        address = read_facts(home / "console.json").get("http")
        self.url = (url or (f"http://{address}" if address else CONSOLE_DEFAULT)).rstrip("/")
        # The password is for the console of --data only, not for any other URL.
        self._password_file = None if url else password_path(home)

    def get(self, path: str, **query: str) -> Any:
        if not self.url.startswith(("http://", "https://")):
            raise CommandFailure(f"'{self.url}' is not an http URL")
        request = urllib.request.Request(  # noqa: S310 - http, checked above
            f"{self.url}{path}?{urlencode(query)}", headers=self.headers()
        )
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:  # noqa: S310
                return json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                raise CommandFailure(f"{self.url}{path}: {error.code} {error.reason}") from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise CannotConnect(
                f"no console answered at {self.url}: {error}",
                "`kafkaesque up` and `kafkaesque console` start one; --console URL selects another",
            ) from None

    def headers(self) -> dict[str, str]:
        """A private console requires the operator's password for reading too."""
        password = os.environ.get(PASSWORD_VARIABLE, "")
        if not password and self._password_file is not None:
            with contextlib.suppress(OSError):
                password = self._password_file.read_text().strip()
        return {"Authorization": f"Bearer {password}"} if password else {}


def console_options(function: F) -> F:
    """Add --console, --data and --json; pass `api` and `screen`."""

    @click.option("--console", "url", metavar="URL", envvar=CONSOLE_VARIABLE, show_envvar=True,
                  help=f"URL of the console.  [default: from --data, or {CONSOLE_DEFAULT}]")  # fmt: skip
    @data_option
    @json_option
    @functools.wraps(function)
    def wrapper(url: str | None, data: Path, **options: Any) -> Any:
        return function(api=ConsoleClient(url, data), **options)

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
@click.option("--rows", type=click.IntRange(1, 20), default=10, show_default=True)
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
        columns = [Column("id", "gateway"), Column("facts", "says", style="dim")]
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
@click.option("--kind", default="", help="One kind: election, broker, replicas, topic, config, "
              "group, lag, operator, fault.")  # fmt: skip
@click.option("--rows", type=click.IntRange(1, 500), default=50, show_default=True)
@console_options
def events(api: ConsoleClient, screen: Screen, kind: str, rows: int) -> None:
    """Show the event log, oldest first: elections, joins, changes, operators' actions."""
    found = api.get("/api/events", kind=kind)
    table = [
        {**event, "at": iso_time(int(event["at_s"] * 1000))} for event in found["events"][:rows]
    ]
    columns = [Column("at", "at"), Column("kind", "kind"), Column("text", "what")]
    screen.document(found, lambda: screen.table(columns, table[::-1], "no events yet"))
