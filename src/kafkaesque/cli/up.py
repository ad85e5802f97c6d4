"""`kafkaesque up`: the whole platform on this machine, until Ctrl-C."""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from kafkaesque.cli import up_welcome
from kafkaesque.cli.failures import CommandFailure, usage
from kafkaesque.cli.options import data_option, examples, port_option, read_pair
from kafkaesque.cli.server_settings import read_broker_settings
from kafkaesque.service.process import stop_event
from kafkaesque.testing.reserved_ports import ReservedPorts
from kafkaesque.up import lock
from kafkaesque.up.plan import Platform
from kafkaesque.up.platform import ENGINES, UpOptions, plan_brokers, run_platform
from kafkaesque.up.ports import (
    CHAT_WEB_PORT,
    CONSOLE_PORT,
    GATEWAY_PORTS,
    HTTP_PORT,
    SMTP_PORT,
    NoSuchPorts,
    PortsInUse,
    broker_ports,
    choose_ports,
    require_free,
    service_ports,
    shifted,
)
from kafkaesque.up.supervisor import Service, StartFailed

F = TypeVar("F", bound=Callable[..., Any])

EXIT_FAILED = 1
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def port_options(function: F) -> F:
    """Add the port options of the services; pass them as `asked_ports`, by option."""

    @functools.wraps(function)
    def wrapper(**options: Any) -> Any:
        asked = {f"--{name}-port": options.pop(f"{name}_port") for name in _SERVICES}
        return function(asked_ports=asked, **options)

    for name, (default, what) in reversed(_SERVICES.items()):
        wrapper = click.option(
            f"--{name}-port",
            type=click.IntRange(0, 65535 - _GATEWAY_SPREAD),
            help=f"Port of {what}; 0 picks a free one.  [default: {default}, shifted like --port]",
        )(wrapper)
    return wrapper  # type: ignore[return-value]


_GATEWAY_SPREAD = max(GATEWAY_PORTS) - min(GATEWAY_PORTS)
_SERVICES = {
    "gateway": (min(GATEWAY_PORTS), f"the first gateway, the second is {_GATEWAY_SPREAD} further"),
    "console": (CONSOLE_PORT, "the console"),
    "chat": (CHAT_WEB_PORT, "the chat page"),
    "mail": (SMTP_PORT, "the mail catcher"),
}


@click.command(
    epilog=examples(
        "kafkaesque up",
        "kafkaesque up --no-spark                     # without the JVM",
        "kafkaesque up --brokers 1 --only-brokers     # one broker and nothing else",
        "kafkaesque up --data ./data --port 19092     # all ports are 10,000 higher",
        "kafkaesque up --console-port 8081            # if 8080 is in use",
        "kafkaesque up --all-jobs                     # every Spark job, for larger machines",
        "kafkaesque up --engine kafka=kafka1:9092 --engine zookeeper=zk1:2181",
        "kafkaesque up --json | jq .services",
    )
)
@data_option
@click.option(
    "--brokers",
    type=click.IntRange(1, 9),
    default=3,
    show_default=True,
    help="Number of brokers.",
)
@port_option
@click.option(
    "--http-port",
    type=click.IntRange(0, 65535),
    help="Port of the first broker's metrics and health pages; the others follow. 0 picks free ports."
    f"  [default: {HTTP_PORT}, shifted like --port]",
)
@port_options
@click.option(
    "--engine",
    "engines",
    multiple=True,
    metavar="NAME=ADDRESS",
    help="Use another engine: kafka=HOST:PORT, zookeeper=HOST:PORT, spark=MASTER.",
)
@click.option("--no-source", is_flag=True, help="Do not run the source of synthetic social posts.")
@click.option("--no-spark", is_flag=True, help="Do not run the Spark jobs; no JVM is needed.")
@click.option(
    "--all-jobs",
    is_flag=True,
    help="Run all Spark jobs: also archive, trends as a table, all of chat, and the quality report "
    "every few minutes. Without it, only jobs for a laptop: posts, trends-live, chat-stages.",
)
@click.option("--only-brokers", is_flag=True, help="Run only the brokers, without the services.")
@click.option("--json", "as_json", is_flag=True, help="Print the addresses as one JSON object.")
def up(
    data: Path,
    brokers: int,
    port: int,
    http_port: int | None,
    asked_ports: Mapping[str, int | None],
    engines: tuple[str, ...],
    no_source: bool,
    no_spark: bool,
    all_jobs: bool,
    only_brokers: bool,
    as_json: bool,
) -> None:
    """Run the whole platform on this machine.

    This starts three brokers with coordination (ZooKeeper's protocol) and the text protocol, two
    gateways, two chat back ends and a chat page, task workers with a mail catcher, a source of
    synthetic social posts, the Spark jobs and the console. A process that dies is restarted.
    State is kept in --data, so the next run continues where this one stopped.
    """
    logging.basicConfig(level="WARNING", format="%(message)s", stream=sys.stderr)
    options = UpOptions(
        data=data.absolute(),
        brokers=brokers,
        port=port,
        http_port=shifted(HTTP_PORT, port) if http_port is None else http_port,
        engines=_read_engines(engines),
        has_services=not only_brokers,
        has_source=not no_source,
        has_spark=not no_spark,
        has_all_jobs=all_jobs,
    )
    settings = read_broker_settings(None, os.environ, ())
    try:
        with lock.held(options.data), ReservedPorts() as free:
            planned = plan_brokers(options, settings, free)
            ports = choose_ports(port, asked_ports, free)
            services = service_ports(ports) if options.has_services else []
            require_free([*broker_ports(planned), *services])
            sys.exit(asyncio.run(_up(options, planned, ports, as_json=as_json)))
    except NoSuchPorts as error:
        raise usage(str(error)) from None
    except (PortsInUse, lock.AlreadyRunning) as error:
        raise CommandFailure(str(error), error.fix) from None


def _read_engines(given: Sequence[str]) -> dict[str, str]:
    engines = dict(read_pair(text) for text in given)
    for name in engines:
        if name not in ENGINES:
            raise usage(f"Unknown engine '{name}'; the engines are {', '.join(ENGINES)}.")
    return engines


async def _up(
    options: UpOptions, brokers: Sequence[Service], ports: Mapping[int, int], *, as_json: bool
) -> int:
    printer = _JsonPrinter() if as_json else _Printer(options)
    try:
        stopping = stop_event(signals=STOP_SIGNALS)
        await run_platform(options, brokers, ports, stopping, printer)
    except StartFailed as error:
        click.echo(f"kafkaesque up: {error}", err=True)
        return EXIT_FAILED
    if not as_json:
        click.echo(f"stopped. The data is in {options.data}")
    return 0


class _JsonPrinter:
    """Prints one JSON object once the platform is up; failures go to standard error."""

    def service_ready(self, service: Service) -> None:
        pass

    def service_failed(self, service: Service, failure: StartFailed) -> None:
        click.echo(f"{failure}\n{service.name} will be restarted.", err=True)

    def platform_ready(self, services: Sequence[Service], platform: Platform) -> None:
        click.echo(up_welcome.as_json(services, platform))
        sys.stdout.flush()

    def stopping(self) -> None:
        pass


class _Printer(_JsonPrinter):
    """Prints each step for people."""

    def __init__(self, options: UpOptions) -> None:
        self._spark_follows = options.has_services and options.has_spark
        self._began = time.monotonic()

    def service_ready(self, service: Service) -> None:
        seconds = time.monotonic() - self._began
        click.echo(f"{seconds:5.1f} s  {service.name:<10} {up_welcome.address(service)}")

    def platform_ready(self, services: Sequence[Service], platform: Platform) -> None:
        click.echo(up_welcome.as_text(services, platform, spark_follows=self._spark_follows))
        sys.stdout.flush()
        self._began = time.monotonic()

    def stopping(self) -> None:
        click.echo("stopping ...")
