"""The ports that `kafkaesque up` is going to use, who has them now, and which option moves them."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from kafkaesque.cli.failures import Failure
from kafkaesque.cli.listening import process_listening_on
from kafkaesque.cli.service_process import host_port
from kafkaesque.cli.supervisor import Service
from kafkaesque.cli.up_plan import SERVICE_PORTS
from kafkaesque.testing.reserved_ports import HOST

BROKER_LISTENERS = {
    "--listen": ("Kafka", "--port"),
    "--coordination-listen": ("coordination", "--port"),
    "--text-listen": ("text protocol", "--port"),
    "--http-listen": ("metrics", "--http-port"),
}
"""What a broker listens for, and the option of `up` that moves it, by the broker's own option."""


class Port(NamedTuple):
    number: int
    what: str
    option: str


def broker_ports(brokers: Sequence[Service]) -> list[Port]:
    """As their commands say; ports that are free ones of the system's choice are not among them."""
    found = []
    for broker in brokers:
        for word, address in zip(broker.command, broker.command[1:], strict=False):
            if word in BROKER_LISTENERS:
                what, option = BROKER_LISTENERS[word]
                found.append(Port(host_port(address)[1], f"{broker.name}, {what}", option))
    return [port for port in found if port.number]


def service_ports(ports: Mapping[int, int]) -> list[Port]:
    """By the ports that were chosen instead of the defaults."""
    return [
        Port(ports[default], wanted.what, wanted.option)
        for default, wanted in SERVICE_PORTS.items()
    ]


def is_free(port: int) -> bool:
    """Whether somebody could listen there now."""
    try:
        socket.create_server((HOST, port)).close()
    except OSError as error:
        # A port that may not be had for another reason is left to whoever wants it to explain.
        return error.errno != errno.EADDRINUSE
    return True


def require_free(
    ports: Sequence[Port],
    has: Callable[[int], bool] = is_free,
    owner: Callable[[int], str | None] = process_listening_on,
) -> None:
    """Raises Failure that names every port that is taken, who has it and what to do."""
    taken = [port for port in ports if not has(port.number)]
    if not taken:
        return
    lines = []
    for port in taken:
        who = owner(port.number)
        lines.append(f"{HOST}:{port.number} ({port.what}) is in use{f' by {who}' if who else ''}")
    options = ", ".join(f"`{option} PORT`" for option in dict.fromkeys(p.option for p in taken))
    raise Failure(
        "\n       ".join(lines),
        f"stop what listens there, or move ours by {options} (0 takes a free one); "
        "`--port 19092` moves every port by 10,000",
    )
