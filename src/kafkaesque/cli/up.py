"""`kafkaesque up`: everything there is, on this machine, until Ctrl-C."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import signal
import sys
from pathlib import Path

import click

from kafkaesque.cli.supervisor import Service, StartFailed, Supervisor

EXIT_FAILED = 1


@click.command(
    epilog="""\b
Examples:
  kafkaesque up
  kafkaesque up --data ./data --port 19092
  kafkaesque up --json | jq .services
"""
)
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("kafkaesque-data"),
    show_default=True,
    help="Directory of all data and logs; kept from one run to the next.",
)
@click.option("--port", type=click.IntRange(0, 65535), default=9092, show_default=True,
              help="Kafka port of the broker; 0 takes a free one.")  # fmt: skip
@click.option("--http-port", type=click.IntRange(0, 65535), default=9644, show_default=True,
              help="Port of the broker's metrics and health pages; 0 takes a free one.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print the addresses as one JSON object.")
def up(data: Path, port: int, http_port: int, as_json: bool) -> None:
    """Run the whole platform on this machine.

    So far that is one broker. State is kept in --data, so the next run goes on where this one
    stopped.
    """
    logging.basicConfig(level="WARNING", format="%(message)s", stream=sys.stderr)
    sys.exit(asyncio.run(_up(data, port, http_port, as_json)))


async def _up(data: Path, port: int, http_port: int, as_json: bool) -> int:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(name, stopping.set)
    supervisor = Supervisor()
    try:
        for service in _services(data, port, http_port):
            if not as_json:
                click.echo(f"starting {service.name} ... ", nl=False)
            await supervisor.start(service)
            if not as_json:
                click.echo(f"ready on {service.facts['kafka']}")
    except StartFailed as error:
        click.echo(f"\nkafkaesque up: {error}", err=True)
        await supervisor.stop()
        return EXIT_FAILED
    click.echo(_as_json(supervisor) if as_json else _welcome(supervisor))
    sys.stdout.flush()
    await stopping.wait()
    if not as_json:
        click.echo("\nstopping ... ", nl=False)
    await supervisor.stop()
    if not as_json:
        click.echo("stopped. Everything is kept in " + str(data))
    return 0


def _services(data: Path, port: int, http_port: int) -> list[Service]:
    command = [
        *(sys.executable, "-m", "kafkaesque.cli.main", "broker", "--node-id", "0"),
        *("--data", str(data / "broker-0"), "--listen", f"127.0.0.1:{port}"),
        *("--http-listen", f"127.0.0.1:{http_port}", "--end-with-stdin"),
    ]
    return [Service("broker-0", command, data / "logs" / "broker-0.log")]


def _as_json(supervisor: Supervisor) -> str:
    return json.dumps(
        {
            "services": [
                {"name": item.name, "pid": item.pid, "log": str(item.log), **item.facts}
                for item in supervisor.services
            ]
        }
    )


def _command() -> str:
    """How the reader can call this program from the directory they are in."""
    if shutil.which("kafkaesque"):
        return "kafkaesque"
    return os.path.relpath(Path(sys.executable).parent / "kafkaesque")


def _welcome(supervisor: Supervisor) -> str:
    broker = supervisor.services[0]
    address = broker.facts["kafka"]
    option = "" if address == "127.0.0.1:9092" else f" -b {address}"
    command = _command()
    return f"""
Kafkaesque is up. Any Kafka client can use it:

  bootstrap.servers   {address}
  metrics, health     http://{broker.facts["http"]}/metrics  /healthz  /readyz
  log                 {broker.log}

Try next, in another terminal:

  echo 'hello, Gregor' | {command} produce greetings{option}
  {command} consume greetings --from beginning{option}
  {command} topic describe greetings{option}

Ctrl-C stops it."""
