"""`kafkaesque up`: everything there is, on this machine, until Ctrl-C."""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from kafkaesque.cli import up_lock, up_welcome
from kafkaesque.cli.broker_services import (
    bootstrap_servers,
    broker_services,
    data_option,
    port_option,
    shared_settings,
    start_brokers,
)
from kafkaesque.cli.control import ControlServer
from kafkaesque.cli.failures import usage
from kafkaesque.cli.options import examples, read_pair
from kafkaesque.cli.server_settings import read_broker_settings
from kafkaesque.cli.side_ports import shifted
from kafkaesque.cli.supervisor import Service, StartFailed, Supervisor
from kafkaesque.cli.up_plan import (
    CHAT_WEB_PORT,
    CONSOLE_PORT,
    GATEWAY_PORTS,
    SMTP_PORT,
    Surroundings,
    choose_ports,
    spark_jobs,
    stages,
)
from kafkaesque.cli.up_ports import broker_ports, require_free, service_ports
from kafkaesque.testing.reserved_ports import HOST, ReservedPorts

F = TypeVar("F", bound=Callable[..., Any])

EXIT_FAILED = 1
HTTP_PORT = 9644
ENGINES = ("kafka", "zookeeper", "spark")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What `up` was asked for."""

    data: Path
    brokers: int
    port: int
    http_port: int
    asked_ports: Mapping[str, int | None]
    """By option."""
    engines: Mapping[str, str]
    has_services: bool
    has_source: bool
    has_spark: bool
    has_all_jobs: bool
    as_json: bool


def port_options(function: F) -> F:
    """Where the services listen; `asked_ports` has them by option."""

    @functools.wraps(function)
    def wrapper(**options: Any) -> Any:
        asked = {f"--{name}-port": options.pop(f"{name}_port") for name in _SERVICES}
        return function(asked_ports=asked, **options)

    for name, (default, what) in reversed(_SERVICES.items()):
        wrapper = click.option(
            f"--{name}-port",
            type=click.IntRange(0, 65535 - _GATEWAY_SPREAD),
            help=f"Port of {what}; 0 takes a free one.  [default: {default}, moved as --port is]",
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
        "kafkaesque up --console-port 8081            # if another has 8080",
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
    help="How many brokers.",
)
@port_option
@click.option(
    "--http-port",
    type=click.IntRange(0, 65535),
    help="Port of the first broker's metrics and health pages, the next follow; 0 takes free ones."
    f"  [default: {HTTP_PORT}, moved as --port is]",
)
@port_options
@click.option(
    "--engine",
    "engines",
    multiple=True,
    metavar="NAME=ADDRESS",
    help="Stand on another engine: kafka=HOST:PORT, zookeeper=HOST:PORT, spark=MASTER.",
)
@click.option("--no-source", is_flag=True, help="Without the stream of synthetic social posts.")
@click.option("--no-spark", is_flag=True, help="Without the Spark jobs, and so without a JVM.")
@click.option(
    "--all-jobs",
    is_flag=True,
    help="Every Spark job: also archive, trends as a table, all of chat, and the quality report "
    "every few minutes. Without it those that a laptop carries: posts, trends-live, chat-stages.",
)
@click.option("--only-brokers", is_flag=True, help="Without everything that is above the brokers.")
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

    That is three brokers with coordination (ZooKeeper's protocol) and the text protocol, two
    gateways, two chat back ends and a chat page, task workers with a mail catcher, a source of
    synthetic social posts, the Spark jobs and the console. A process that dies is started again.
    State is kept in --data, so the next run goes on where this one stopped.
    """
    logging.basicConfig(level="WARNING", format="%(message)s", stream=sys.stderr)
    wanted = Wanted(
        data=data.absolute(),
        brokers=brokers,
        port=port,
        http_port=shifted(HTTP_PORT, port) if http_port is None else http_port,
        asked_ports=asked_ports,
        engines=_read_engines(engines),
        has_services=not only_brokers,
        has_source=not no_source,
        has_spark=not no_spark,
        has_all_jobs=all_jobs,
        as_json=as_json,
    )
    with up_lock.held(wanted.data), ReservedPorts() as free:
        brokers_wanted = planned_brokers(wanted, free)
        ports = choose_ports(port, asked_ports, free)
        services = service_ports(ports) if wanted.has_services else []
        require_free([*broker_ports(brokers_wanted), *services])
        sys.exit(asyncio.run(_up(wanted, brokers_wanted, ports)))


def _read_engines(given: Sequence[str]) -> dict[str, str]:
    engines = dict(read_pair(text) for text in given)
    for name in engines:
        if name not in ENGINES:
            raise usage(f"There is no engine '{name}'; there are {', '.join(ENGINES)}.")
    return engines


async def _up(wanted: Wanted, brokers: Sequence[Service], ports: Mapping[int, int]) -> int:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(name, stopping.set)
    supervisor = Supervisor()
    control = ControlServer(supervisor, wanted.data)
    try:
        await control.open(HOST)
        around = await _start(supervisor, wanted, brokers, ports, stopping)
        if around is not None:
            spark = wanted.has_services and wanted.has_spark
            services = supervisor.services
            click.echo(
                up_welcome.as_json(services, around)
                if wanted.as_json
                else up_welcome.as_text(services, around, spark_follows=spark)
            )
            sys.stdout.flush()
            if spark:
                jobs = spark_jobs(around, all_jobs=wanted.has_all_jobs)
                await _start_stage(supervisor, jobs, stopping, _teller(wanted))
            await stopping.wait()
    except StartFailed as error:
        click.echo(f"kafkaesque up: {error}", err=True)
        return EXIT_FAILED
    finally:
        if not wanted.as_json:
            click.echo("stopping ...")
        await supervisor.stop()
        await control.close()
    if not wanted.as_json:
        click.echo(f"stopped. Everything is kept in {wanted.data}")
    return 0


async def _start(
    supervisor: Supervisor,
    wanted: Wanted,
    brokers: Sequence[Service],
    ports: Mapping[int, int],
    stopping: asyncio.Event,
) -> Surroundings | None:
    """What the services stand on; None if it is to stop before everything is up."""
    tell = _teller(wanted)
    if brokers and not await start_brokers(supervisor, brokers, stopping, tell):
        return None
    around = Surroundings(
        data=wanted.data,
        ports=ports,
        bootstrap=wanted.engines.get("kafka") or bootstrap_servers(brokers),
        zookeeper=wanted.engines.get("zookeeper")
        or ",".join(broker.facts["coordination"] for broker in brokers),
        spark_master=wanted.engines.get("spark"),
    )
    if wanted.has_services:
        for stage in stages(around, source=wanted.has_source):
            if not await _start_stage(supervisor, stage, stopping, tell):
                return None
    return around


def _teller(wanted: Wanted) -> up_welcome.Tell:
    began = time.monotonic()

    def tell(service: Service) -> None:
        if not wanted.as_json:
            seconds = time.monotonic() - began
            click.echo(f"{seconds:5.1f} s  {service.name:<10} {up_welcome.address(service)}")

    return tell


def planned_brokers(wanted: Wanted, free: ReservedPorts) -> list[Service]:
    """Beside another Kafka one is enough, for coordination, and none beside another ZooKeeper."""
    count = wanted.brokers
    if "kafka" in wanted.engines:
        count = 0 if "zookeeper" in wanted.engines else 1
    if count == 0:
        return []
    settings = read_broker_settings(None, os.environ, ())
    shared = shared_settings(count, settings, ())
    return broker_services(wanted.data, wanted.port, count, shared, free, wanted.http_port)


async def _start_stage(
    supervisor: Supervisor,
    services: Sequence[Service],
    stopping: asyncio.Event,
    tell: up_welcome.Tell,
) -> bool:
    """Start all at once. One that fails is told of and tried again: the others do without it."""

    async def start(service: Service) -> None:
        failure = await supervisor.try_start(service)
        if failure is None:
            tell(service)
        else:
            click.echo(f"{failure}\n{service.name} is tried again.", err=True)

    starts = asyncio.ensure_future(asyncio.gather(*map(start, services)))
    stop = asyncio.ensure_future(stopping.wait())
    try:
        await asyncio.wait((starts, stop), return_when=asyncio.FIRST_COMPLETED)
        return not stopping.is_set()
    finally:
        for task in (starts, stop):
            task.cancel()
        await asyncio.gather(starts, stop, return_exceptions=True)
