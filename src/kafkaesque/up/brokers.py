"""The brokers of one cluster as supervised processes: their command lines, and how they start."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from kafkaesque.testing.reserved_ports import HOST, ReservedPorts
from kafkaesque.up.ports import SIDE_PORTS, consecutive_ports, side_ports
from kafkaesque.up.supervisor import Service, Supervisor

REPLICATED_FROM = 3
"""From this many brokers on topics are replicated, so that any one broker may die."""
REPLICATED_DEFAULTS = {"default.replication.factor": "3", "min.insync.replicas": "2"}


def shared_settings(
    count: int, settings: Mapping[str, str], assignments: Sequence[str]
) -> list[str]:
    """NAME=VALUE settings for every broker; `settings` are those that the user has set."""
    defaults = REPLICATED_DEFAULTS if count >= REPLICATED_FROM else {}
    missing = [f"{name}={value}" for name, value in defaults.items() if name not in settings]
    return [*missing, *assignments]


def broker_services(
    data: Path,
    first_port: int,
    count: int,
    shared: Sequence[str],
    free: ReservedPorts,
    first_http_port: int = 0,
) -> list[Service]:
    """The first broker founds the cluster if there is none yet; all others join.

    Their other listeners have the ports that belong to their Kafka port, or free ports if
    `first_port` is 0. Raises NoSuchPorts.
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
    on_ready: Callable[[Service], None],
) -> bool:
    """Start all brokers and call `on_ready` for each, in order. False if `stopping` was set first.

    They start together: in an existing cluster no broker is ready before a majority is up.
    Raises StartFailed.
    """
    starts = [asyncio.ensure_future(supervisor.start(service)) for service in services]
    stop = asyncio.ensure_future(stopping.wait())
    try:
        for service, start in zip(services, starts, strict=True):
            # The first failure is why the others do not become ready.
            watched = {stop, *(other for other in starts if not other.done())}
            while not start.done() and not stop.done():
                done, watched = await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
                for ended in done - {stop}:
                    ended.result()
            if stop.done():
                return False
            start.result()
            on_ready(service)
        _join_from_now_on(services)
        return True
    finally:
        for task in (stop, *starts):
            task.cancel()
        await asyncio.gather(stop, *starts, return_exceptions=True)


def _join_from_now_on(services: Sequence[Service]) -> None:
    """Restarts of the founder join: if it lost its data, it must not found another cluster."""
    first, *others = services
    if others and "--join" not in first.command:
        first.command = [*first.command, "--join", bootstrap_servers(others)]
