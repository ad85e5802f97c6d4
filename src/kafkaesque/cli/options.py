"""Options that commands share, and examples in help texts."""

from __future__ import annotations

import functools
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from kafkaesque.admin.errors import AdminError
from kafkaesque.cli.failures import CommandFailure, failure_of, usage
from kafkaesque.cli.render import Screen
from kafkaesque.model.errors import InvalidConfig

if TYPE_CHECKING:
    from kafkaesque.admin.connection import ClusterConnection

F = TypeVar("F", bound=Callable[..., Any])

BOOTSTRAP_DEFAULT = "127.0.0.1:9092"
BOOTSTRAP_VARIABLE = "KAFKAESQUE_BOOTSTRAP"


def examples(*lines: str) -> str:
    """An epilog of examples; click does not rewrap the lines."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def read_pair(text: str, what: str = "NAME=VALUE") -> tuple[str, str]:
    """Split `name=value`; the value may be empty and may contain `=`."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise usage(f"'{text}' is not {what}.")
    return name.strip(), value


def read_properties(path: Path) -> dict[str, str]:
    """A client properties file, in the format of Kafka's own tools."""
    from kafkaesque.service import settings

    try:
        return {item.name: item.value for item in settings.read_properties(path)}
    except InvalidConfig as error:
        raise usage(str(error)) from None


def make_connection(ctx: click.Context, options: dict[str, Any]) -> ClusterConnection:
    """Remove the connection options from `options`. A flag overrides the file, the file overrides the
    environment, the environment overrides the default."""
    bootstrap: str = options.pop("bootstrap_server")
    path: Path | None = options.pop("client_config")
    properties = read_properties(path) if path else {}
    properties.update(read_pair(text) for text in options.pop("client_properties"))
    named = properties.pop("bootstrap.servers", None)
    if named and ctx.get_parameter_source("bootstrap_server") is not ParameterSource.COMMANDLINE:
        bootstrap = named
    return open_connection(bootstrap, properties, options.pop("timeout"))


def open_connection(
    bootstrap: str, properties: dict[str, str], timeout_s: float
) -> ClusterConnection:
    """A connection; an invalid address is a usage error."""
    from kafkaesque.admin.connection import ClusterConnection

    try:
        return ClusterConnection(bootstrap, properties, timeout_s)
    except ValueError as error:
        raise usage(str(error)) from None


def json_option(function: F) -> F:
    """Add --json and pass a `Screen`."""

    @click.option("--json", "as_json", is_flag=True, help="Print JSON and nothing else.")
    @functools.wraps(function)
    def wrapper(*args: Any, **options: Any) -> Any:
        return function(*args, screen=Screen(options.pop("as_json")), **options)

    return wrapper  # type: ignore[return-value]


def address_option(function: F) -> F:
    return click.option(
        "-b",
        "--bootstrap-server",
        metavar="HOST:PORT[,...]",
        envvar=BOOTSTRAP_VARIABLE,
        default=BOOTSTRAP_DEFAULT,
        show_default=True,
        show_envvar=True,
        help="Address of a broker; more addresses for when it is down.",
    )(function)


@contextmanager
def _terminate_like_interrupt() -> Iterator[None]:
    """Handle SIGTERM like Ctrl-C: records that were read are committed, queued records are sent."""

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def client_options(timeout_s: float = 10.0) -> Callable[[F], F]:
    """Add the options of every operating command; pass a `ClusterConnection` and a `Screen`."""

    def decorate(function: F) -> F:
        @click.option(
            "--timeout",
            type=click.FloatRange(min=0.1),
            default=timeout_s,
            show_default=True,
            metavar="SECONDS",
            help="How long to wait for the cluster to answer.",
        )
        @click.option(
            "-X",
            "client_properties",
            multiple=True,
            metavar="NAME=VALUE",
            help="Any librdkafka property, such as security.protocol=SSL; may be repeated.",
        )
        @click.option(
            "--client-config",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="File of client properties (TLS, SASL), as for Kafka's own tools.",
        )
        @address_option
        @click.pass_context
        @functools.wraps(function)
        def wrapper(ctx: click.Context, /, *args: Any, **options: Any) -> Any:
            with _terminate_like_interrupt():
                try:
                    return function(*args, connection=make_connection(ctx, options), **options)
                except AdminError as error:
                    raise failure_of(error) from None

        return json_option(wrapper)  # type: ignore[return-value]

    return decorate


def complete_topics(
    ctx: click.Context, _param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Topic names of the cluster of the command line; none if it cannot be reached."""
    from kafkaesque.admin.connection import ClusterConnection

    bootstrap = ctx.params.get("bootstrap_server") or BOOTSTRAP_DEFAULT
    try:
        names = ClusterConnection(bootstrap, {}, timeout_s=1.0).topic_names()
    except (AdminError, ValueError):
        return []
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


data_option = click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("kafkaesque-data"),
    show_default=True,
    help="Directory of all data and logs; reused by the next run.",
)
running_data_option = click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("kafkaesque-data"),
    show_default=True,
    help="Data directory of the running `kafkaesque up`.",
)


def log_level_option(default: str = "warning") -> Callable[[F], F]:
    return click.option(
        "--log-level",
        type=click.Choice(["debug", "info", "warning", "error"]),
        default=default,
        show_default=True,
        help="Lowest level that is logged, on standard error.",
    )


port_option = click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=9092,
    show_default=True,
    help="Kafka port of the first broker; the others follow. 0 picks free ports.",
)


def confirm(yes: bool, question: str) -> None:
    """Ask for confirmation; without a terminal, fail unless `yes` is set."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise CommandFailure(
            "this cannot be undone, and there is no terminal to confirm it", "add --yes to confirm"
        )
    if not click.confirm(question, err=True):
        raise CommandFailure("not confirmed, so nothing was changed")
