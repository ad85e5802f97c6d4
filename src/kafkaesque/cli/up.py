"""`kafkaesque up`: everything there is, on this machine, until Ctrl-C."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

import click

from kafkaesque.cli.broker_services import (
    HOST,
    bootstrap_servers,
    broker_services,
    data_option,
    port_option,
    shared_settings,
    start_brokers,
)
from kafkaesque.cli.options import examples
from kafkaesque.cli.server_settings import read_broker_settings
from kafkaesque.cli.supervisor import Service, StartFailed, Supervisor

EXIT_FAILED = 1
POSTS_PER_SECOND = 20


@dataclass(frozen=True, slots=True)
class Wanted:
    """What `up` was asked for."""

    data: Path
    brokers: int
    port: int
    http_port: int
    has_source: bool
    as_json: bool


@click.command(
    epilog=examples(
        "kafkaesque up",
        "kafkaesque up --brokers 1 --no-source        # one broker and nothing else",
        "kafkaesque up --data ./data --port 19092",
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
@click.option("--no-source", is_flag=True, help="Without the stream of synthetic social posts.")
@click.option("--json", "as_json", is_flag=True, help="Print the addresses as one JSON object.")
def up(data: Path, brokers: int, port: int, http_port: int, no_source: bool, as_json: bool) -> None:
    """Run the whole platform on this machine.

    That is a cluster of brokers with coordination (ZooKeeper's protocol) and the text protocol on
    ports of their own, and a source of synthetic social posts that writes to social.posts. State
    is kept in --data, so the next run goes on where this one stopped.
    """
    logging.basicConfig(level="WARNING", format="%(message)s", stream=sys.stderr)
    wanted = Wanted(data, brokers, port, http_port, not no_source, as_json)
    sys.exit(asyncio.run(_up(wanted)))


async def _up(wanted: Wanted) -> int:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(name, stopping.set)
    supervisor = Supervisor()
    try:
        if await _start(supervisor, wanted, stopping):
            services = supervisor.services
            click.echo(_as_json(services) if wanted.as_json else _welcome(services, wanted))
            sys.stdout.flush()
            await stopping.wait()
    except StartFailed as error:
        click.echo(f"kafkaesque up: {error}", err=True)
        return EXIT_FAILED
    finally:
        if not wanted.as_json:
            click.echo("stopping ...")
        await supervisor.stop()
    if not wanted.as_json:
        click.echo(f"stopped. Everything is kept in {wanted.data}")
    return 0


async def _start(supervisor: Supervisor, wanted: Wanted, stopping: asyncio.Event) -> bool:
    """False if it is to stop before everything is up."""

    def tell(service: Service) -> None:
        if not wanted.as_json:
            address = service.facts.get("kafka") or service.facts.get("http", "")
            click.echo(f"{service.name} is ready on {address}")

    settings = read_broker_settings(None, os.environ, ())
    shared = shared_settings(wanted.brokers, settings, ())
    brokers = broker_services(wanted.data, wanted.port, wanted.brokers, shared, wanted.http_port)
    if not await start_brokers(supervisor, brokers, stopping, tell):
        return False
    if wanted.has_source:
        source = _source(wanted.data, bootstrap_servers(brokers))
        await supervisor.start(source)
        tell(source)
    return not stopping.is_set()


def _source(data: Path, servers: str) -> Service:
    command = [
        *(sys.executable, "-m", "kafkaesque.cli.main", "source", "run"),
        *("--bootstrap-server", servers, "--data", str(data / "source")),
        *("--rate", str(POSTS_PER_SECOND), "--end-with-stdin"),
    ]
    return Service("source", command, data / "logs" / "source.log")


def _as_json(services: list[Service]) -> str:
    brokers = [service for service in services if "kafka" in service.facts]
    return json.dumps(
        {
            "bootstrap_servers": bootstrap_servers(brokers),
            "services": [
                {**item.facts, "name": item.name, "pid": item.pid, "log": str(item.log)}
                for item in services
            ],
        }
    )


def _command() -> str:
    """How the reader can call this program from the directory they are in."""
    if shutil.which("kafkaesque"):
        return "kafkaesque"
    return os.path.relpath(Path(sys.executable).parent / "kafkaesque")


def _welcome(services: list[Service], wanted: Wanted) -> str:
    brokers = [service for service in services if service.name.startswith("broker-")]
    first = brokers[0].facts
    option = "" if first["kafka"] == f"{HOST}:9092" else f" -b {first['kafka']}"
    command = _command()
    posts = f"\n  {command} consume social.posts --follow{option}" if wanted.has_source else ""
    return f"""
Kafkaesque is up. Any Kafka client can use it:

  bootstrap.servers   {bootstrap_servers(brokers)}
  zookeeper.connect   {",".join(broker.facts["coordination"] for broker in brokers)}
  telnet, nc          {",".join(broker.facts["text"] for broker in brokers)}
  metrics, health     http://{first["http"]}/metrics  /healthz  /readyz
  logs                {wanted.data / "logs"}

Try next, in another terminal:

  echo 'hello, Gregor' | {command} produce greetings{option}
  {command} consume greetings --from beginning{option}
  {command} topic describe greetings{option}{posts}

Then end a broker (kill -9 {brokers[-1].facts["pid"]}) and go on. Ctrl-C stops everything."""
