"""`kafkaesque up`: everything there is, on this machine, until Ctrl-C."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from kafkaesque.cli import up_welcome
from kafkaesque.cli.broker_services import (
    HOST,
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
from kafkaesque.cli.supervisor import Service, StartFailed, Supervisor
from kafkaesque.cli.up_plan import Surroundings, choose_ports, pipeline, stages

EXIT_FAILED = 1
ENGINES = ("kafka", "zookeeper", "spark")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What `up` was asked for."""

    data: Path
    brokers: int
    port: int
    http_port: int
    engines: Mapping[str, str]
    has_services: bool
    has_source: bool
    has_spark: bool
    as_json: bool


@click.command(
    epilog=examples(
        "kafkaesque up",
        "kafkaesque up --no-spark                     # without the JVM",
        "kafkaesque up --brokers 1 --only-brokers     # one broker and nothing else",
        "kafkaesque up --data ./data --port 19092     # all ports are 10,000 higher",
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
    default=9644,
    show_default=True,
    help="Port of the first broker's metrics and health pages, the next follow; 0 takes free ones.",
)
@click.option(
    "--engine",
    "engines",
    multiple=True,
    metavar="NAME=ADDRESS",
    help="Stand on another engine: kafka=HOST:PORT, zookeeper=HOST:PORT, spark=MASTER.",
)
@click.option("--no-source", is_flag=True, help="Without the stream of synthetic social posts.")
@click.option("--no-spark", is_flag=True, help="Without the Spark jobs, and so without a JVM.")
@click.option("--only-brokers", is_flag=True, help="Without everything that is above the brokers.")
@click.option("--json", "as_json", is_flag=True, help="Print the addresses as one JSON object.")
def up(
    data: Path,
    brokers: int,
    port: int,
    http_port: int,
    engines: tuple[str, ...],
    no_source: bool,
    no_spark: bool,
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
        http_port=http_port,
        engines=_read_engines(engines),
        has_services=not only_brokers,
        has_source=not no_source,
        has_spark=not no_spark,
        as_json=as_json,
    )
    sys.exit(asyncio.run(_up(wanted)))


def _read_engines(given: Sequence[str]) -> dict[str, str]:
    engines = dict(read_pair(text) for text in given)
    for name in engines:
        if name not in ENGINES:
            raise usage(f"There is no engine '{name}'; there are {', '.join(ENGINES)}.")
    return engines


async def _up(wanted: Wanted) -> int:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(name, stopping.set)
    supervisor = Supervisor()
    control = ControlServer(supervisor, wanted.data)
    try:
        await control.open(HOST)
        around = await _start(supervisor, wanted, stopping)
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
                await _start_stage(supervisor, [pipeline(around)], stopping, _teller(wanted))
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
    supervisor: Supervisor, wanted: Wanted, stopping: asyncio.Event
) -> Surroundings | None:
    """What the services stand on; None if it is to stop before everything is up."""
    tell = _teller(wanted)
    brokers = _brokers(wanted)
    if brokers and not await start_brokers(supervisor, brokers, stopping, tell):
        return None
    around = Surroundings(
        data=wanted.data,
        ports=choose_ports(wanted.port),
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


def _brokers(wanted: Wanted) -> list[Service]:
    """Beside another Kafka one is enough, for coordination, and none beside another ZooKeeper."""
    count = wanted.brokers
    if "kafka" in wanted.engines:
        count = 0 if "zookeeper" in wanted.engines else 1
    if count == 0:
        return []
    settings = read_broker_settings(None, os.environ, ())
    shared = shared_settings(count, settings, ())
    return broker_services(wanted.data, wanted.port, count, shared, wanted.http_port)


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
