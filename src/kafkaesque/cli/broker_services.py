"""Brokers of one cluster as child processes of a supervisor: their commands, and how they start."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import click

from kafkaesque.cli.failures import usage
from kafkaesque.cli.side_ports import SIDE_PORTS, side_ports
from kafkaesque.cli.supervisor import Service, Supervisor
from kafkaesque.testing.reserved_ports import HOST, ReservedPorts

REPLICATED_FROM = 3
"""With this many brokers any one of them may die, so topics get what makes use of it."""
REPLICATED_DEFAULTS = {"default.replication.factor": "3", "min.insync.replicas": "2"}


data_option = click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("kafkaesque-data"),
    show_default=True,
    help="Directory of all data and logs; kept from one run to the next.",
)
port_option = click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=9092,
    show_default=True,
    help="Kafka port of the first broker, the next ones follow; 0 takes free ones.",
)


def shared_settings(
    count: int, settings: Mapping[str, str], assignments: Sequence[str]
) -> list[str]:
    """NAME=VALUE for every broker."""
    defaults = REPLICATED_DEFAULTS if count >= REPLICATED_FROM else {}
    missing = [f"{name}={value}" for name, value in defaults.items() if name not in settings]
    return [*missing, *assignments]


def consecutive_ports(first: int, count: int, free: ReservedPorts) -> Sequence[int]:
    """From `first` on; free ones for 0."""
    if first:
        if first + count - 1 > 65535:
            raise usage(f"there are no {count} ports from {first} on.")
        return list(range(first, first + count))
    return free.take(count)


def broker_services(
    data: Path,
    first_port: int,
    count: int,
    shared: Sequence[str],
    free: ReservedPorts,
    first_http_port: int = 0,
) -> list[Service]:
    """The first broker founds the cluster if there is none yet; every other joins by any other.

    What they offer beside Kafka is on ports that belong to their Kafka port, or free if that is.
    """
    ports = consecutive_ports(first_port, count, free)
    http_ports = consecutive_ports(first_http_port, count, free)
    is_new = not any((data / f"broker-{number}").exists() for number in range(count))
    services = []
    for number in range(count):
        sides = side_ports(ports[number])
        if not first_port:
            sides = dict(zip(sides, free.take(len(SIDE_PORTS)), strict=True))
        command = _command(data, number, ports[number], http_ports[number])
        others = [f"{HOST}:{port}" for port in ports if port != ports[number]]
        if others and not (is_new and number == 0):
            command += ["--join", ",".join(others)]
        for option, port in sides.items():
            command += [f"--{option}", f"{HOST}:{port}"]
        for assignment in shared:
            command += ["--set", assignment]
        log = data / "logs" / f"broker-{number}.log"
        services.append(Service(f"broker-{number}", command, log))
    return services


def _command(data: Path, number: int, port: int, http_port: int) -> list[str]:
    return [
        *(sys.executable, "-m", "kafkaesque.cli.main", "broker", "--node-id", str(number)),
        *("--data", str(data / f"broker-{number}"), "--listen", f"{HOST}:{port}"),
        *("--http-listen", f"{HOST}:{http_port}", "--end-with-stdin"),
    ]


def bootstrap_servers(services: Sequence[Service]) -> str:
    return ",".join(service.facts["kafka"] for service in services)


async def start_brokers(
    supervisor: Supervisor,
    services: Sequence[Service],
    stopping: asyncio.Event,
    tell: Callable[[Service], None],
) -> bool:
    """Start all; `tell` hears of each in their order. False if they are to stop before that.

    All at once: of brokers that form a cluster already none is ready before a majority is up.
    Raises StartFailed.
    """
    starts = [asyncio.ensure_future(supervisor.start(service)) for service in services]
    stop = asyncio.ensure_future(stopping.wait())
    try:
        for service, start in zip(services, starts, strict=True):
            # Whichever fails first is the reason why the others do not get ready.
            watched = {stop, *(other for other in starts if not other.done())}
            while not start.done() and not stop.done():
                done, watched = await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
                for ended in done - {stop}:
                    ended.result()
            if stop.done():
                return False
            start.result()
            tell(service)
        _found_no_more(services)
        return True
    finally:
        for task in (stop, *starts):
            task.cancel()
        await asyncio.gather(stop, *starts, return_exceptions=True)


def _found_no_more(services: Sequence[Service]) -> None:
    """The one that founded joins from now on: should it come back without its data, it must not
    found another cluster."""
    first, *others = services
    if others and "--join" not in first.command:
        first.command = [*first.command, "--join", bootstrap_servers(others)]
