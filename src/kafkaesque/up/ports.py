"""Ports of the platform on this machine: defaults, how they move together, and who has them now.

Every default port belongs to Kafka's default, 9092. With another Kafka port all of them move by the
same distance, so that several platforms can run on one machine.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from kafkaesque.model.address import parse_address
from kafkaesque.testing.reserved_ports import HOST, ReservedPorts
from kafkaesque.up.supervisor import Service

KAFKA_PORT = 9092
HTTP_PORT = 9644
SIDE_PORTS = {"coordination-listen": 2181, "text-listen": 9100}
"""Default ports of the first broker, by the broker's option."""
GATEWAY_PORTS = (7000, 7010)
CONSOLE_PORT = 8080
CHAT_WEB_PORT = 8090
SMTP_PORT = 1025
PORT_MAX = 65535
_PORT_MIN = 1024
_LISTEN_STATE = "0A"


class PortsInUse(Exception):
    """Names every port that is taken and who has it; `fix` is what to do."""

    def __init__(self, message: str, fix: str) -> None:
        super().__init__(message)
        self.fix = fix


class NoSuchPorts(ValueError):
    """More ports were asked for than there are above the first."""


class Port(NamedTuple):
    """A port that `up` will use, who listens there, and the option of `up` that moves it."""

    number: int
    what: str
    option: str


class ServicePort(NamedTuple):
    what: str
    option: str


SERVICE_PORTS: Mapping[int, ServicePort] = {
    **{
        port: ServicePort(f"gateway-{number}", "--gateway-port")
        for number, port in enumerate(GATEWAY_PORTS)
    },
    CONSOLE_PORT: ServicePort("console", "--console-port"),
    CHAT_WEB_PORT: ServicePort("chat page", "--chat-port"),
    SMTP_PORT: ServicePort("mail catcher", "--mail-port"),
}
"""By default port. The source, the workers and the back ends take free ports."""

BROKER_LISTENERS = {
    "--listen": ("Kafka", "--port"),
    "--coordination-listen": ("coordination", "--port"),
    "--text-listen": ("text protocol", "--port"),
    "--http-listen": ("metrics", "--http-port"),
}
"""The purpose of each of a broker's ports and the option of `up` that changes it, by the broker's own
option."""


# -- choosing --------------------------------------------------------------------------------------


def shifted(default_port: int, kafka_port: int) -> int:
    """`default_port`, moved as far as `kafka_port` is from 9092.

    0, which takes a free port, if there is no such port or `kafka_port` is 0.
    """
    port = default_port + kafka_port - KAFKA_PORT
    return port if kafka_port and _PORT_MIN <= port <= PORT_MAX else 0


def side_ports(kafka_port: int) -> dict[str, int]:
    return {option: shifted(port, kafka_port) for option, port in SIDE_PORTS.items()}


def consecutive_ports(first: int, count: int, free: ReservedPorts) -> Sequence[int]:
    """`count` ports from `first` on; free ones if `first` is 0. Raises NoSuchPorts."""
    if first == 0:
        return free.take(count)
    if first + count - 1 > PORT_MAX:
        raise NoSuchPorts(f"there are no {count} ports from {first} on.")
    return list(range(first, first + count))


def choose_ports(
    kafka_port: int, asked: Mapping[str, int | None], free: ReservedPorts
) -> Mapping[int, int]:
    """Ports of the services, by their defaults: as `asked` for by option, otherwise moved with
    `kafka_port`. Chosen before anything starts, because services get each other's addresses."""
    chosen = {}
    for default, (_, option) in SERVICE_PORTS.items():
        first = asked.get(option)
        port = shifted(default, kafka_port)
        if first is not None:
            # The second gateway is as far from the first as by default.
            port = first and first + default - min(_defaults(option))
        chosen[default] = port or free.take(1)[0]
    return chosen


def _defaults(option: str) -> list[int]:
    return [port for port, service in SERVICE_PORTS.items() if service.option == option]


# -- checking --------------------------------------------------------------------------------------


def broker_ports(brokers: Sequence[Service]) -> list[Port]:
    """From the brokers' command lines, without ports that the system will choose."""
    found = []
    for broker in brokers:
        for word, address in zip(broker.command, broker.command[1:], strict=False):
            if word in BROKER_LISTENERS:
                what, option = BROKER_LISTENERS[word]
                found.append(Port(parse_address(address)[1], f"{broker.name}, {what}", option))
    return [port for port in found if port.number]


def service_ports(ports: Mapping[int, int]) -> list[Port]:
    """The ports of the services, by the ports that `choose_ports` returned."""
    return [
        Port(ports[default], service.what, service.option)
        for default, service in SERVICE_PORTS.items()
    ]


def is_free(port: int) -> bool:
    """Whether a process could listen there now."""
    try:
        socket.create_server((HOST, port)).close()
    except OSError as error:
        # The process that listens there later explains any other error.
        return error.errno != errno.EADDRINUSE
    return True


def require_free(
    ports: Sequence[Port],
    has: Callable[[int], bool] = is_free,
    owner: Callable[[int], str | None] | None = None,
) -> None:
    """Raises PortsInUse, which names every port that is taken."""
    taken = [port for port in ports if not has(port.number)]
    if not taken:
        return
    lines = []
    for port in taken:
        who = (owner or process_listening_on)(port.number)
        lines.append(f"{HOST}:{port.number} ({port.what}) is in use{f' by {who}' if who else ''}")
    options = ", ".join(f"`{option} PORT`" for option in dict.fromkeys(p.option for p in taken))
    raise PortsInUse(
        "\n       ".join(lines),
        f"stop the process that listens there, or use {options} (0 takes a free port); "
        "`--port 19092` moves every port by 10,000",
    )


# -- who listens -----------------------------------------------------------------------------------


def listening_inodes(table: str, port: int) -> set[str]:
    """Inodes of the sockets that listen on `port`, from the text of /proc/net/tcp or tcp6."""
    found = set()
    for line in table.splitlines()[1:]:
        parts = line.split()
        if len(parts) < 10 or parts[3] != _LISTEN_STATE:
            continue
        if int(parts[1].rpartition(":")[2], 16) == port:
            found.add(parts[9])
    return found


def process_listening_on(port: int, proc: Path = Path("/proc")) -> str | None:
    """`java, pid 4711`; None if it is unknown (another user's process, or not Linux)."""
    inodes: set[str] = set()
    for name in ("net/tcp", "net/tcp6"):
        try:
            inodes |= listening_inodes((proc / name).read_text(), port)
        except OSError:
            continue
    links = {f"socket:[{inode}]" for inode in inodes}
    if not links:
        return None
    for directory in proc.glob("[0-9]*"):
        try:
            if any(_target(link) in links for link in (directory / "fd").iterdir()):
                return f"{(directory / 'comm').read_text().strip()}, pid {directory.name}"
        except OSError:
            continue
    return None


def _target(link: Path) -> str:
    try:
        return os.readlink(link)
    except OSError:
        # Closed since it was listed; the process may have the socket under another number.
        return ""
