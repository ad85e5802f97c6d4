"""`kafkaesque cluster`: several brokers of one cluster on this machine, until Ctrl-C."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from kafkaesque.cli.failures import ExitCode, usage
from kafkaesque.cli.options import data_option, examples, port_option
from kafkaesque.cli.server_settings import read_broker_settings
from kafkaesque.service.child_process import ready_line
from kafkaesque.service.process import stop_event
from kafkaesque.testing.reserved_ports import HOST, ReservedPorts
from kafkaesque.up.brokers import (
    bootstrap_servers,
    broker_services,
    shared_settings,
    start_brokers,
)
from kafkaesque.up.ports import NoSuchPorts
from kafkaesque.up.supervisor import Service, StartFailed, Supervisor

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
OWN_SETTINGS = frozenset(
    {
        "node.id",
        "log.dirs",
        "listeners",
        "advertised.listeners",
        "http.listener",
        "coordination.listener",
        "text.listener",
        "join",
    }
)
"""Settings that differ between the brokers."""


@click.command(
    epilog=examples(
        "kafkaesque cluster -n 3 --data ./data",
        "kafkaesque cluster -n 3 --data ./data --port 19092 --set num.partitions=6",
        "kafkaesque cluster -n 3 --data ./data --json | jq -r .bootstrap_servers",
    )
)
@click.option(
    "-n",
    "--brokers",
    "count",
    type=click.IntRange(1, 9),
    default=3,
    show_default=True,
    help="Number of brokers.",
)
@data_option
@port_option
@click.option(
    "--set",
    "assignments",
    multiple=True,
    metavar="NAME=VALUE",
    help="Any setting of `kafkaesque config list`, for every broker; may be repeated.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the addresses as one JSON object.")
def cluster(count: int, data: Path, port: int, assignments: tuple[str, ...], as_json: bool) -> None:
    """Run a cluster of brokers on this machine.

    Prints one line `ready kafka=HOST:PORT,...` when all brokers are ready. A broker that dies is
    restarted. With three brokers or more, the defaults are default.replication.factor=3 and
    min.insync.replicas=2.
    """
    settings = read_broker_settings(None, os.environ, assignments)
    for assignment in assignments:
        name = assignment.partition("=")[0].strip()
        if name in OWN_SETTINGS:
            raise usage(
                f"--set {name} is not possible: each broker needs its own value. Run single brokers with kafkaesque broker."
            )
    logging.basicConfig(level="WARNING", format="%(message)s", stream=sys.stderr)
    shared = shared_settings(count, settings, assignments)
    with ReservedPorts() as free:
        try:
            services = broker_services(data, port, count, shared, free)
        except NoSuchPorts as error:
            raise usage(str(error)) from None
        sys.exit(asyncio.run(_run(services, data, as_json)))


async def _run(services: Sequence[Service], data: Path, as_json: bool) -> int:
    stopping = stop_event(signals=STOP_SIGNALS)
    supervisor = Supervisor()
    try:
        on_ready = (lambda _: None) if as_json else _print_ready
        if await start_brokers(supervisor, services, stopping, on_ready):
            click.echo(_as_json(services) if as_json else _welcome(services, data))
            sys.stdout.flush()
            await stopping.wait()
    except StartFailed as error:
        click.echo(f"kafkaesque cluster: {error}", err=True)
        return int(ExitCode.FAILED)
    finally:
        if not as_json:
            click.echo("stopping ...")
        await supervisor.stop()
    if not as_json:
        click.echo(f"stopped. The data is in {data}")
    return int(ExitCode.OK)


def _print_ready(service: Service) -> None:
    click.echo(f"{service.name} is ready on {service.facts['kafka']}")


def _as_json(services: Sequence[Service]) -> str:
    return json.dumps(
        {
            "bootstrap_servers": bootstrap_servers(services),
            "services": [
                {"name": item.name, "pid": item.pid, "log": str(item.log), **item.facts}
                for item in services
            ],
        }
    )


def _welcome(services: Sequence[Service], data: Path) -> str:
    first = services[0].facts["kafka"]
    option = "" if first == f"{HOST}:9092" else f" -b {first}"
    return f"""{ready_line({"kafka": bootstrap_servers(services)})}

  zookeeper.connect   {",".join(service.facts["coordination"] for service in services)}
  telnet, nc          {",".join(service.facts["text"] for service in services)}
  logs                {data / "logs"}

Try next, in another terminal:

  kafkaesque broker-admin brokers{option}
  kafkaesque topic create greetings --partitions 3{option}
  kafkaesque topic describe greetings{option}

Then kill a broker with kill -9 {services[-1].facts["pid"]}, and describe the topic again. Ctrl-C stops all brokers.
"""
