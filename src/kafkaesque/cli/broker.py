"""`kafkaesque broker`: one broker in the foreground."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import click

from kafkaesque.broker.storage.directory import DataDirectoryInvalid
from kafkaesque.cli.options import log_level_option
from kafkaesque.cli.server_settings import read_broker_settings
from kafkaesque.model.errors import DataDirectoryInUse, InvalidConfig, KafkaError
from kafkaesque.model.settings import BrokerConfig, broker_config
from kafkaesque.service.child_process import ready_line
from kafkaesque.service.logs import set_up_logs
from kafkaesque.service.process import new_event_loop

Facts = Mapping[str, str | int | None]
"""Addresses, id, pid and data directory of a running broker; None for a disabled listener."""
Format = Callable[[Facts], str]

EXIT_FAILED = 1
EXIT_USAGE = 2


@click.command(
    epilog="""\b
Examples:
  kafkaesque broker --data ./data
  kafkaesque broker --data ./data --listen 127.0.0.1:0 --set num.partitions=4
  kafkaesque broker --data ./data --set flush=never        # durability of Apache Kafka
  kafkaesque broker --node-id 1 --data ./data-1 --listen 127.0.0.1:9093 --join 127.0.0.1:9092
  KAFKAESQUE_NUM_PARTITIONS=4 kafkaesque broker --config server.properties
  kafkaesque broker --listen 127.0.0.1:0 --json | jq -r .kafka
"""
)
@click.option("--node-id", type=click.IntRange(0), help="Id of this broker.  [default: 0]")
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    help="Data directory.  [default: ./kafkaesque-data/broker-0]",
)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    help="Address of the Kafka listener; port 0 picks a free one.  [default: 127.0.0.1:9092]",
)
@click.option(
    "--join",
    metavar="HOST:PORT,...",
    help="Brokers of the cluster to join, one or more. Without it, starts a new cluster.",
)
@click.option("--rack", help="Rack of this broker; replicas are spread over racks.")
@click.option(
    "--http-listen",
    metavar="HOST:PORT",
    help="Address of /metrics, /healthz and /readyz.  [default: a free port]",
)
@click.option(
    "--coordination-listen",
    metavar="HOST:PORT",
    help="Address of the coordination service (ZooKeeper's protocol).  [default: off]",
)
@click.option(
    "--text-listen",
    metavar="HOST:PORT",
    help="Address of the text protocol, for telnet and nc.  [default: off]",
)
@click.option(
    "--advertise",
    metavar="HOST:PORT",
    help="Address that clients connect to, if it differs from --listen.",
)
@click.option(
    "--config",
    "config_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Properties file (name=value), like Kafka's server.properties.",
)
@click.option(
    "--set",
    "assignments",
    multiple=True,
    metavar="NAME=VALUE",
    help="Any setting of `kafkaesque config list`; may be repeated.",
)
@click.option(
    "--insecure", is_flag=True, help="Allow a plaintext listener that other machines can reach."
)
@click.option("--json", "as_json", is_flag=True, help="Print `ready` as one JSON object.")
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Format of the log on standard error.",
)
@log_level_option("info")
@click.option(
    "--end-with-stdin",
    is_flag=True,
    hidden=True,
    help="Stop when standard input ends: for supervisors.",
)
def broker(
    node_id: int | None,
    data: Path | None,
    listen: str | None,
    join: str | None,
    rack: str | None,
    http_listen: str | None,
    coordination_listen: str | None,
    text_listen: str | None,
    advertise: str | None,
    config_file: Path | None,
    assignments: tuple[str, ...],
    insecure: bool,
    as_json: bool,
    log_format: str,
    log_level: str,
    end_with_stdin: bool,
) -> None:
    """Run one broker until Ctrl-C or SIGTERM.

    Prints one line `ready kafka=HOST:PORT ...` (with --json, an object) when it is ready. While it runs,
    broker.json in the data directory has the same addresses.
    """
    values = read_broker_settings(config_file, os.environ, assignments)
    if data is None and "," in values.get("log.dirs", ""):
        # Kafka's log.dirs is a list, so a comma is never part of a directory's name.
        raise click.UsageError(
            f"log.dirs: one directory is supported, not {values['log.dirs']!r}; "
            "use --data for a name that has a comma"
        )
    flags = {
        "node.id": None if node_id is None else str(node_id),
        "log.dirs": None if data is None else str(data),
        "listeners": listen,
        "join": join,
        "broker.rack": rack,
        "http.listener": http_listen,
        "coordination.listener": coordination_listen,
        "text.listener": text_listen,
        "advertised.listeners": advertise,
        "insecure": "true" if insecure else None,
    }
    values |= {name: text for name, text in flags.items() if text is not None}
    values.setdefault("log.dirs", "kafkaesque-data/broker-0")
    set_up_logs(log_format, log_level)
    try:
        form = _json_line if as_json else _ready_line
        sys.exit(_run(broker_config(values), form, end_with_stdin))
    except InvalidConfig as error:
        raise click.UsageError(str(error)) from None


def _ready_line(facts: Facts) -> str:
    shown = {**facts, "http": facts["http"] or "off"}
    return ready_line({name: value for name, value in shown.items() if value is not None})


def _json_line(facts: Facts) -> str:
    return json.dumps(facts)


def _run(config: BrokerConfig, form: Format, end_with_stdin: bool) -> int:
    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            return runner.run(_serve(config, form, end_with_stdin))
    except (DataDirectoryInUse, DataDirectoryInvalid, KafkaError) as error:
        click.echo(f"kafkaesque broker: {error}", err=True)
    except OSError as error:
        click.echo(f"kafkaesque broker: {_explain(config, error)}", err=True)
    return EXIT_FAILED


def _explain(config: BrokerConfig, error: OSError) -> str:
    if error.errno != errno.EADDRINUSE:
        where = f" {error.filename}:" if error.filename else ""
        return (
            f"cannot start:{where} {error.strerror or error}. This user must be able to create and "
            f"write the data directory {config.log_dirs}; --data selects another one."
        )
    flag, address = _taken(config, str(error))
    return (
        f"cannot listen on {address}: the address is in use. `kafkaesque doctor` "
        f"shows the process; {flag} 127.0.0.1:0 picks a free port."
    )


def _taken(config: BrokerConfig, bind_error: str) -> tuple[str, str]:
    """The option and address that could not be bound, by the port in asyncio's error message."""
    listeners = {
        "--http-listen": config.http_listener,
        "--coordination-listen": config.coordination_listener,
        "--text-listen": config.text_listener,
    }
    for flag, address in listeners.items():
        if address and f", {address.rpartition(':')[2]})" in bind_error:
            return flag, address
    return "--listen", config.listeners


async def _serve(config: BrokerConfig, form: Format, end_with_stdin: bool) -> int:
    # Imported late: --help is faster without the broker.
    from kafkaesque.broker.process import serve_broker

    def on_ready(facts: Facts) -> None:
        click.echo(form(facts))
        sys.stdout.flush()

    is_well = await serve_broker(config, on_ready, end_with_stdin=end_with_stdin)
    return 0 if is_well else EXIT_FAILED
