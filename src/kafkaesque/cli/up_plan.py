"""What `kafkaesque up` runs above the brokers: commands, ports and order. Starts nothing.

A stage is started when the one before it is up; the services of a stage start together. All of them
find the log by bootstrap.servers and coordination by zookeeper.connect, so it is all the same to
them whose Kafka and whose ZooKeeper these are.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from kafkaesque.cli.control import control_file
from kafkaesque.cli.side_ports import shifted
from kafkaesque.cli.supervisor import Service
from kafkaesque.testing.reserved_ports import HOST, ReservedPorts

POSTS_PER_SECOND = 20
GATEWAY_PORTS = (7000, 7010)
CHAT_BACKENDS = 2
TASK_WORKERS = 2
CONSOLE_PORT = 8080
CHAT_WEB_PORT = 8090
SMTP_PORT = 1025
READY_SECONDS = 60.0
"""A dozen interpreters start at once."""
SPARK_READY_SECONDS = 300.0
"""Spark's first start unpacks, compiles and warms up, on a busy machine for minutes."""
SPARK_STOP_SECONDS = 30.0
"""It ends between two batches."""
SPARK_MASTER = "local[2]"
LIGHT_STREAMS, LIGHT_EVERY_S = ("light",), 2
"""The set of queries that two cores carry beside a dozen other processes."""
ALL_STREAMS, ALL_EVERY_S = ("social", "chat"), 5
ARCHIVE_EVERY_S = 300
"""Between two runs of the archive and of the report that compares it with the log."""


class ServicePort(NamedTuple):
    """Who listens on a port, and the option of `up` that moves it."""

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
"""By their defaults. The source, the workers and the back ends take free ports."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the services stand on."""

    data: Path
    ports: Mapping[int, int]
    """By their defaults."""
    bootstrap: str
    zookeeper: str
    spark_master: str | None = None

    def address(self, default_port: int) -> str:
        return f"{HOST}:{self.ports[default_port]}"


def choose_ports(
    kafka_port: int, asked: Mapping[str, int | None], free: ReservedPorts
) -> Mapping[int, int]:
    """By their defaults. As `asked` for by option, else as far from the default as the first
    broker's is from 9092; free ones where that is 0. Known before anything starts, because the
    services tell each other."""
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


def stages(around: Surroundings, *, source: bool) -> list[list[Service]]:
    """All services but the brokers and Spark, in the order of their start."""
    first = [*_chat_backends(around), _mail_catcher(around), _console(around)]
    if source:
        first.append(_source(around))
    second = [*_gateways(around), *_task_workers(around), _chat_web(around)]
    for number, services in enumerate((first, second), 1):
        for service in services:
            service.stage = number
    return [first, second]


def _service(around: Surroundings, name: str, *words: str, data: str | None = None) -> Service:
    command = [
        *(sys.executable, "-m", "kafkaesque.cli.main", *words, "--end-with-stdin"),
        *("--data", str(around.data / (data or name))),
    ]
    log = around.data / "logs" / f"{name}.log"
    return Service(name, command, log, ready_seconds_max=READY_SECONDS)


def _source(around: Surroundings) -> Service:
    return _service(
        around, "source", "source", "run", "--bootstrap-server", around.bootstrap,
        "--rate", str(POSTS_PER_SECOND),
    )  # fmt: skip


def _chat_backends(around: Surroundings) -> list[Service]:
    return [
        _service(
            around, f"chat-{number}", "chat", "backend", "--name", f"chat-{number}",
            "--bootstrap-server", around.bootstrap, "--set", f"group.instance.id=chat-{number}",
        )
        for number in range(CHAT_BACKENDS)
    ]  # fmt: skip


def _gateways(around: Surroundings) -> list[Service]:
    """One key for all: a token of one is good at the other."""
    page = f"http://{around.address(CHAT_WEB_PORT)}"
    settings = (
        f"zookeeper.connect={around.zookeeper}",
        f"ws.origins={page},{page.replace(HOST, 'localhost')}",
        f"auth.secret.file={around.data / 'gateway.key'}",
    )
    return [
        _service(
            around, f"gateway-{number}", "gateway", "--name", f"gateway-{number}",
            "--listen", around.address(port), "--bootstrap-server", around.bootstrap,
            *_set(settings),
        )
        for number, port in enumerate(GATEWAY_PORTS)
    ]  # fmt: skip


def _mail_catcher(around: Surroundings) -> Service:
    return _service(around, "mail", "tasks", "mail-catcher", "--listen", around.address(SMTP_PORT))


def _task_workers(around: Surroundings) -> list[Service]:
    _, smtp_port = around.address(SMTP_PORT).rsplit(":", 1)
    settings = (f"mail.port={smtp_port}", "mail.tls=none")
    return [
        _service(
            around, f"tasks-{number}", "tasks", "chat-jobs", "--timers",
            "--name", f"tasks-{number}", "--bootstrap-server", around.bootstrap,
            "--zookeeper-connect", around.zookeeper, *_set(settings),
        )
        for number in range(TASK_WORKERS)
    ]  # fmt: skip


def _console(around: Surroundings) -> Service:
    host, port = around.address(CONSOLE_PORT).rsplit(":", 1)
    return _service(
        around, "console", "console", "--host", host, "--port", port,
        "--bootstrap-server", around.bootstrap, "--coordination", around.zookeeper,
        "--control", str(control_file(around.data)),
        "--pipeline-data", str(around.data / "pipeline"),
        "--chat-url", f"http://{around.address(CHAT_WEB_PORT)}",
    )  # fmt: skip


def _chat_web(around: Surroundings) -> Service:
    gateways = [word for port in GATEWAY_PORTS for word in ("--gateway", around.address(port))]
    return _service(
        around, "chat-web", "chat", "web", "--listen", around.address(CHAT_WEB_PORT), *gateways
    )


def spark_jobs(around: Surroundings, *, all_jobs: bool) -> list[Service]:
    """What nothing else waits for."""
    if all_jobs:
        return [_pipeline(around, ALL_STREAMS, ALL_EVERY_S), _archive(around)]
    return [_pipeline(around, LIGHT_STREAMS, LIGHT_EVERY_S)]


def _pipeline(around: Surroundings, queries: Sequence[str], every_s: int) -> Service:
    service = _service(
        around, "pipeline", "pipeline", "run", *queries, "--every", str(every_s),
        "--bootstrap-server", around.bootstrap, "--master", around.spark_master or SPARK_MASTER,
    )  # fmt: skip
    service.stage = 3
    service.ready_seconds_max = SPARK_READY_SECONDS
    service.stop_seconds_max = SPARK_STOP_SECONDS
    return service


def _archive(around: Surroundings) -> Service:
    """In a Spark of its own that ends each time, and so in a directory of its own."""
    common = shlex.join(
        (
            *("--data", str(around.data / "archive"), "--bootstrap-server", around.bootstrap),
            *("--master", around.spark_master or SPARK_MASTER),
        )
    )
    jobs = (
        f"pipeline run archive --once --end-with-stdin {common}",
        f"pipeline run quality {common}",
    )
    command = [sys.executable, "-m", "kafkaesque.cli.up_periodic", str(ARCHIVE_EVERY_S), *jobs]
    log = around.data / "logs" / "archive.log"
    return Service("archive", command, log, stage=3, stop_seconds_max=SPARK_STOP_SECONDS)


def _set(assignments: Sequence[str]) -> list[str]:
    return [word for assignment in assignments for word in ("--set", assignment)]
