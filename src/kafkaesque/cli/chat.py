"""`kafkaesque chat`: back ends, the web page, and clients for people and scripts."""

from __future__ import annotations

import asyncio
import functools
import importlib.util
import json
import os
import sys
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kafkaesque.cli.failures import CannotConnect, CommandFailure, usage
from kafkaesque.cli.options import client_options, examples, json_option, log_level_option
from kafkaesque.cli.server_settings import read_service_settings, show_settings
from kafkaesque.cli.service_process import guarded_host_port, host_port, run_service
from kafkaesque.service.child_process import print_ready

if TYPE_CHECKING:
    from kafkaesque.admin.connection import ClusterConnection
    from kafkaesque.chat.config import BackendConfig
    from kafkaesque.cli.render import Screen
    from kafkaesque.edge.client_state import Credentials

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

GATEWAY_DEFAULT = "127.0.0.1:7000"
CHECK_GATEWAY = "check that a gateway and a back end run: `kafkaesque status`"


def edge_options(function: F) -> F:
    """Add the options for gateways and account; pass `gateways` and `credentials`."""

    @click.option("-g", "--gateway", "gateways", multiple=True, envvar="KAFKAESQUE_GATEWAY",
                  metavar="ADDRESS", default=(GATEWAY_DEFAULT,), show_default=True,
                  help="HOST:PORT, tls://, ws:// or wss://; may be repeated.")  # fmt: skip
    @click.option("-n", "--name", envvar="KAFKAESQUE_CHAT_NAME", help="Name of the account.")
    @click.option("--password", envvar="KAFKAESQUE_CHAT_PASSWORD",
                  help="Prefer KAFKAESQUE_CHAT_PASSWORD; without a password, prompts for it.")  # fmt: skip
    @click.option("--token", envvar="KAFKAESQUE_CHAT_TOKEN", help="A JWT instead of a password.")
    @click.option("--register", is_flag=True, help="Create the account first.")
    @functools.wraps(function)
    def wrapper(*args: Any, **options: Any) -> Any:
        from kafkaesque.edge.client_state import Credentials

        name, password = options.pop("name"), options.pop("password")
        token, register = options.pop("token"), options.pop("register")
        if token is None:
            if not name:
                raise usage("An account is required: use --name NAME, or --token.")
            if not password:
                password = click.prompt("Password", hide_input=True, err=True)
        credentials = Credentials(token, name, password, register)
        return function(*args, credentials=credentials, **options)

    return wrapper  # type: ignore[return-value]


@click.group()
def chat() -> None:
    """Chat over gateways and the log: back ends, a terminal client, a web page.

    A back end needs a Kafka, a client needs a gateway. See docs/CHAT.md for the guarantees.
    """
    if importlib.util.find_spec("aiohttp") is None:
        raise CommandFailure("chat needs aiohttp", "pip install 'kafkaesque-platform[gateway]'")


@chat.command(
    epilog=examples(
        "kafkaesque chat backend",
        "kafkaesque chat backend --name b2 --http-listen 127.0.0.1:0   # shares the load with the first",
        "kafkaesque chat backend -b kafka1:9092 --set session.timeout.ms=6000",
        "kafkaesque chat backend --name b1 --set group.instance.id=b1  # no rebalance after a crash",
    )
)
@click.option(
    "--name", help="Name of this back end; keep it across restarts.  [default: from host and pid]"
)
@click.option("--app-version", type=click.Choice(["v1", "v2"]), default="v1", show_default=True,
              help="Serve clients of this version. v1 keeps the state; v2 translates and forwards to v1.")  # fmt: skip
@click.option("--data", type=click.Path(file_okay=False, path_type=Path),
              help="Directory of backend.json.  [default: kafkaesque-data/chat-NAME]")  # fmt: skip
@click.option("--http-listen", metavar="HOST:PORT", default="127.0.0.1:0", show_default=True,
              help="Address of /metrics, /status, /healthz and /readyz.")  # fmt: skip
@click.option("--set", "assignments", multiple=True, metavar="NAME=VALUE",
              help="Any setting of `chat settings`; may be repeated.")  # fmt: skip
@click.option("--end-with-stdin", is_flag=True, hidden=True, help="For supervisors.")
@log_level_option()
@client_options()
def backend(connection: ClusterConnection, screen: Screen, **options: Any) -> None:
    """Serve chat until Ctrl-C or SIGTERM. Several back ends share the accounts.

    Prints one line `ready ...` when it has joined the group.
    """
    from kafkaesque.chat.backend import PartitionCountMismatch
    from kafkaesque.chat.process import BackendOptions, serve_backend
    from kafkaesque.chat.rules.facts import EntryUnreadable
    from kafkaesque.service.logs import set_up_logs

    set_up_logs("text", options.pop("log_level"))
    config = read_config(options.pop("assignments"))
    connection.reach()
    wanted = BackendOptions(
        bootstrap=connection.bootstrap,
        properties=connection.properties,
        config=config,
        http_listen=host_port(options.pop("http_listen")),
        **options,
    )
    try:
        summary = run_service(serve_backend(wanted))
    except PartitionCountMismatch as error:
        raise CommandFailure(
            str(error), "`kafkaesque topic alter TOPIC --partitions N` adds partitions"
        ) from None
    except EntryUnreadable as error:
        raise CommandFailure(
            f"the journal was written by a later build: {error}", "run that build or a later one"
        ) from None
    text = (
        f"stopped after {summary['messages']} messages, {summary['commands']} commands, "
        f"{summary['repeats']} repeats dropped"
    )
    click.echo(json.dumps(summary) if screen.as_json else text)


@chat.command(
    epilog=examples(
        "kafkaesque chat client --name ann --register",
        "KAFKAESQUE_CHAT_PASSWORD=... kafkaesque chat client -g 127.0.0.1:7000 -n ann",
        "printf '/to bob\\nhello\\n' | kafkaesque chat client -n ann --plain",
        "kafkaesque chat client -n bot --json < commands | jq -r .text",
    )
)
@edge_options
@click.option("--app-version", default="", help="Application version; selects the back ends.")
@click.option("--plain", is_flag=True, help="Read and print lines instead of a full screen.")
@click.option(
    "--json", "as_json", is_flag=True, help="Like --plain, with one JSON object per line of output."
)
def client(
    gateways: tuple[str, ...],
    credentials: Credentials,
    app_version: str,
    plain: bool,
    as_json: bool,
) -> None:
    """Chat in the terminal. /help lists the commands.

    Reconnects automatically; no message is lost when a gateway or a back end fails.
    """
    from kafkaesque.cli.chat_client import ClientOptions, run_client

    run_client(ClientOptions(gateways, credentials, app_version, plain, as_json))


@chat.command(
    epilog=examples(
        "kafkaesque chat send -n ann bob 'hello there'",
        "kafkaesque chat send -n ann '#kafka' 'hello, room' --json",
    )
)
@edge_options
@click.argument("to")
@click.argument("text")
@click.option("--timeout", "timeout_s", type=click.FloatRange(min=0.1), default=30.0,
              show_default=True, metavar="SECONDS", help="How long to wait for the result.")  # fmt: skip
@json_option
def send(
    screen: Screen,
    gateways: tuple[str, ...],
    credentials: Credentials,
    to: str,
    text: str,
    timeout_s: float,
) -> None:
    """Send one message to an account or a #room, and wait until it is delivered."""
    from kafkaesque.chat.client.requests import send_message

    result = _within(timeout_s, send_message(gateways, credentials, to, text))
    screen.document(result, lambda: click.echo(f"sent as {result['message_id']}"))


@chat.command(
    "list",
    epilog=examples("kafkaesque chat list -n ann", "kafkaesque chat list -n ann 'b*' --json"),
)
@edge_options
@click.argument("pattern", default="*")
@click.option("--timeout", "timeout_s", type=click.FloatRange(min=0.1), default=30.0,
              show_default=True, metavar="SECONDS", help="How long to wait for the result.")  # fmt: skip
@json_option
def list_accounts(
    screen: Screen,
    gateways: tuple[str, ...],
    credentials: Credentials,
    pattern: str,
    timeout_s: float,
) -> None:
    """List the accounts, all or those that match a pattern with * and ?."""
    from kafkaesque.chat.client import requests
    from kafkaesque.cli.render import Column

    rows = _within(timeout_s, requests.list_accounts(gateways, credentials, pattern))
    columns = [Column("name", "name"), Column("online", "online")]
    screen.document(rows, lambda: screen.table(columns, rows))


def _within(timeout_s: float, work: Coroutine[Any, Any, T]) -> T:
    """Run one request; its errors become failures of the command."""
    from kafkaesque.edge.client import ClientClosed, RequestFailed

    async def run() -> T:
        async with asyncio.timeout(timeout_s):
            return await work

    try:
        return asyncio.run(run())
    except RequestFailed as failed:
        raise CommandFailure(str(failed)) from None
    except ClientClosed as closed:
        raise CannotConnect(str(closed), CHECK_GATEWAY) from None
    except TimeoutError:
        raise CannotConnect(f"no answer within {timeout_s:g} s", CHECK_GATEWAY) from None


@chat.command(
    epilog=examples(
        "kafkaesque chat web                          # then open http://127.0.0.1:8090",
        "kafkaesque chat web --listen 127.0.0.1:0 -g wss://chat.example.org/ --json",
        "kafkaesque gateway --set ws.origins=http://127.0.0.1:8090   # the page's address",
    )
)
@click.option("-g", "--gateway", "gateways", multiple=True, envvar="KAFKAESQUE_GATEWAY",
              metavar="ADDRESS", default=(GATEWAY_DEFAULT,), show_default=True,
              help="HOST:PORT, ws:// or wss://, as browsers reach it; may be repeated.")  # fmt: skip
@click.option("--listen", metavar="HOST:PORT", default="127.0.0.1:8090", show_default=True,
              help="Address of the page; port 0 picks a free one.")  # fmt: skip
@click.option("--insecure", is_flag=True,
              help="Allow a plaintext page that other machines can reach.")  # fmt: skip
@click.option("--data", type=click.Path(file_okay=False, path_type=Path),
              default=Path("kafkaesque-data") / "chat-web", show_default=True,
              help="Directory of web.json.")  # fmt: skip
@click.option("--end-with-stdin", is_flag=True, hidden=True, help="For supervisors.")
@click.option("--json", "as_json", is_flag=True, help="Print `ready` as one JSON object.")
def web(
    gateways: tuple[str, ...],
    listen: str,
    insecure: bool,
    data: Path,
    end_with_stdin: bool,
    as_json: bool,
) -> None:
    """Serve the web chat page. The gateways' setting `ws.origins` must contain its address."""
    from kafkaesque.chat.process import serve_web

    address = guarded_host_port("--listen", listen, insecure=insecure)
    urls = [web_socket_url(gateway) for gateway in gateways]
    on_ready = _print_ready_json if as_json else print_ready
    run_service(serve_web(urls, address, data, end_with_stdin, on_ready))


def web_socket_url(address: str) -> str:
    """The URL for browsers; HOST:PORT is ws://HOST:PORT/."""
    if "://" not in address:
        host_port(address)
        return f"ws://{address}/"
    if not address.startswith(("ws://", "wss://")):
        raise usage(
            f"'{address}' is not an address for a browser: write HOST:PORT, ws:// or wss://."
        )
    return address


def _print_ready_json(facts: Mapping[str, str]) -> None:
    click.echo(json.dumps(facts))
    sys.stdout.flush()


@chat.command("settings", epilog=examples("kafkaesque chat settings --json"))
@json_option
def list_settings(screen: Screen) -> None:
    """List the settings of `chat backend --set`."""
    from kafkaesque.chat.config import BACKEND_SETTINGS

    show_settings(BACKEND_SETTINGS, screen)


def read_config(assignments: tuple[str, ...]) -> BackendConfig:
    from kafkaesque.chat.config import BackendConfig

    return read_service_settings(
        BackendConfig, assignments, listing="`chat settings`", environment=os.environ,
        prefix="KAFKAESQUE_CHAT_",
    )  # fmt: skip
