"""`kafkaesque console`: serves the web console of a cluster."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kafkaesque.cli.failures import CannotConnect, CommandFailure, usage
from kafkaesque.cli.options import client_options, examples
from kafkaesque.cli.server_settings import read_service_settings
from kafkaesque.console.operator_password import PASSWORD_VARIABLE, read_password
from kafkaesque.model.address import is_loopback
from kafkaesque.service.child_process import print_ready

if TYPE_CHECKING:
    from kafkaesque.admin.connection import ClusterConnection
    from kafkaesque.cli.render import Screen
    from kafkaesque.console.web.config import ConsoleConfig, ConsoleSettings

DATA_DEFAULT = Path("kafkaesque-data/console")


@click.command(
    epilog=examples(
        "kafkaesque console                                  # http://127.0.0.1:8080",
        "kafkaesque console -b broker1:9092 --coordination 127.0.0.1:2181",
        "kafkaesque console --metrics http://127.0.0.1:9644/metrics,http://127.0.0.1:9645/metrics",
        "kafkaesque console -X security.protocol=SASL_SSL -X sasl.mechanism=SCRAM-SHA-256 \\",
        "    -X sasl.username=me -X sasl.password=secret",
        "curl -s http://127.0.0.1:8080/api/groups | jq '.items[] | {name, lag, status}'",
    )
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8080, show_default=True,
              help="Port to listen on; 0 picks a free one.")  # fmt: skip
@click.option("--insecure", is_flag=True,
              help="Allow a non-loopback address without TLS.")  # fmt: skip
@click.option("--coordination", metavar="HOST:PORT[,...]", envvar="KAFKAESQUE_COORDINATION",
              help="Coordination service, for the tree, sessions and gateways.")  # fmt: skip
@click.option("--metrics", metavar="URL[,...]", default="",
              help="/metrics URLs of brokers and services.")  # fmt: skip
@click.option("--control", type=click.Path(dir_okay=False, path_type=Path),
              help="Control file of `kafkaesque up`, to kill, pause and restart its processes.")  # fmt: skip
@click.option("--pipeline-data", type=click.Path(file_okay=False, path_type=Path),
              help="Data directory of the pipeline, for the status of its Spark queries.")  # fmt: skip
@click.option("--schemas", type=click.Path(exists=True, file_okay=False, path_type=Path),
              help="Directory of Avro schemas: ID.avsc, TOPIC.avsc, TOPIC-key.avsc.")  # fmt: skip
@click.option("--schema-registry", metavar="URL", help="URL of a schema registry, for Avro.")
@click.option("--chat-url", metavar="URL", help="URL of the web chat, for a link.")
@click.option("--data", type=click.Path(file_okay=False, path_type=Path), default=DATA_DEFAULT,
              show_default=True, help="Directory of console.json and the password.")  # fmt: skip
@click.option("--password-file", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help=f"File with the operator's password.  [default: {PASSWORD_VARIABLE}, or a random "
              "password stored in --data]")  # fmt: skip
@click.option("--set", "assignments", multiple=True, metavar="NAME=VALUE",
              help="A setting: console.interval.ms, console.private, console.allowed.hosts, "
              "console.session.hours.")  # fmt: skip
@click.option("--end-with-stdin", is_flag=True, hidden=True,
              help="Stop when standard input ends: for supervisors.")  # fmt: skip
@client_options()
def console(
    connection: ClusterConnection,
    screen: Screen,
    host: str,
    port: int,
    insecure: bool,
    data: Path,
    password_file: Path | None,
    assignments: tuple[str, ...],
    end_with_stdin: bool,
    **options: str | Path | None,
) -> None:
    """Show a cluster in the browser: health, topics, messages, groups, Raft, and more.

    Works with any Kafka; some data is available only from our brokers. Anyone who can reach the page
    can read; changes require the operator's password. See docs/CONSOLE.md.
    """
    for module, extra in (("starlette", "console"), ("kazoo", "coordination")):
        if importlib.util.find_spec(module) is None:
            raise CommandFailure(f"the console needs {module}",
                          f"pip install 'kafkaesque-platform[{extra}]'")  # fmt: skip
    from kafkaesque.console.web.config import ConsoleConfig

    if not insecure and not is_loopback(host):
        raise usage(f"{host} is not a loopback address, and there is no TLS: use a proxy with TLS, "
                    "or add --insecure.")  # fmt: skip
    try:
        password = read_password(data, password_file, os.environ)
    except ValueError as error:
        raise usage(str(error)) from None
    config = ConsoleConfig(
        bootstrap=connection.bootstrap,
        properties=connection.properties,
        host=host,
        port=port,
        password=password,
        coordination=_text(options["coordination"]),
        metrics=tuple(url for url in str(options["metrics"]).split(",") if url),
        control_file=_path(options["control"]),
        pipeline_data=_path(options["pipeline_data"]),
        schemas=_path(options["schemas"]),
        schema_registry=_text(options["schema_registry"]),
        chat_url=_web_address(_text(options["chat_url"])),
        settings=read_settings(os.environ, assignments),
    )
    logging.basicConfig(level="WARNING", format="%(levelname)s %(name)s: %(message)s")
    _run(config, data, screen.as_json, end_with_stdin)


def _text(value: str | Path | None) -> str | None:
    return str(value) if value else None


def _path(value: str | Path | None) -> Path | None:
    return Path(value) if value else None


def _web_address(text: str | None) -> str | None:
    """Rejects other schemes, such as `javascript:`: the address becomes a link on a page."""
    if text is not None and not text.startswith(("http://", "https://")):
        raise usage(f"'{text}' is not an http URL: write http://HOST or https://HOST.")
    return text


def read_settings(environment: Mapping[str, str], assignments: tuple[str, ...]) -> ConsoleSettings:
    """Settings from the environment (KAFKAESQUE_CONSOLE_INTERVAL_MS=500), overridden by --set."""
    from kafkaesque.console.web.config import ConsoleSettings

    return read_service_settings(
        ConsoleSettings, assignments, listing="`console --help`", environment=environment
    )


def _run(config: ConsoleConfig, data: Path, as_json: bool, end_with_stdin: bool) -> None:
    from kafkaesque.client.wire.security import InvalidSecurity
    from kafkaesque.console.process import serve_console

    def on_ready(facts: Mapping[str, str]) -> None:
        _print_ready(facts, as_json)

    try:
        asyncio.run(serve_console(config, data, on_ready, end_with_stdin=end_with_stdin))
    except InvalidSecurity as error:
        raise CommandFailure(
            str(error), "correct the properties of -X or --client-config"
        ) from None
    except OSError as error:
        raise CannotConnect(
            f"cannot listen on {config.host}:{config.port}: {error.strerror or error}",
            "use another --port; 0 picks a free one",
        ) from None


def _print_ready(facts: Mapping[str, str], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(facts))
        sys.stdout.flush()
        return
    print_ready(facts)
    if sys.stdout.isatty():
        click.echo(f"open http://{facts['http']}/ ; Ctrl-C stops it", err=True)
