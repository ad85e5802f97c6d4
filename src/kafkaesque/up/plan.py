"""The processes of `kafkaesque up` above the brokers: command lines and order. Starts nothing.

A stage starts when the one before it is up; the services of a stage start together. All of them find
the log by bootstrap.servers and coordination by zookeeper.connect, so Apache Kafka and Apache
ZooKeeper serve as well.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kafkaesque.testing.reserved_ports import HOST
from kafkaesque.up.control_client import control_file
from kafkaesque.up.ports import CHAT_WEB_PORT, CONSOLE_PORT, GATEWAY_PORTS, SMTP_PORT
from kafkaesque.up.supervisor import Service

POSTS_PER_SECOND = 20
CHAT_BACKENDS = 2
TASK_WORKERS = 2
READY_SECONDS = 60.0
"""A dozen interpreters start at once."""
SPARK_READY_SECONDS = 300.0
"""Spark's first start unpacks, compiles and warms up; on a busy machine that takes minutes."""
SPARK_STOP_SECONDS = 30.0
"""Spark stops between two batches."""
SPARK_MASTER = "local[2]"
LIGHT_STREAMS, LIGHT_EVERY_S = ("light",), 2
"""The queries that a machine with two cores can run beside a dozen other processes."""
ALL_STREAMS, ALL_EVERY_S = ("social", "chat"), 5
ARCHIVE_EVERY_S = 300
"""Between two runs of the archive job and of the report that compares it with the log."""


@dataclass(frozen=True, slots=True)
class Platform:
    """Data directory, ports and engine addresses that the services get."""

    data: Path
    ports: Mapping[int, int]
    """By default port."""
    bootstrap: str
    zookeeper: str
    spark_master: str | None = None

    def address(self, default_port: int) -> str:
        return f"{HOST}:{self.ports[default_port]}"


def stages(platform: Platform, *, source: bool) -> list[list[Service]]:
    """All services except the brokers and Spark, in the order in which they start."""
    first = [*_chat_backends(platform), _mail_catcher(platform), _console(platform)]
    if source:
        first.append(_source(platform))
    second = [*_gateways(platform), *_task_workers(platform), _chat_web(platform)]
    for number, services in enumerate((first, second), 1):
        for service in services:
            service.stage = number
    return [first, second]


def _service(platform: Platform, name: str, *words: str, data: str | None = None) -> Service:
    command = [
        *(sys.executable, "-m", "kafkaesque.cli.main", *words, "--end-with-stdin"),
        *("--data", str(platform.data / (data or name))),
    ]
    log = platform.data / "logs" / f"{name}.log"
    return Service(name, command, log, ready_seconds_max=READY_SECONDS)


def _source(platform: Platform) -> Service:
    return _service(
        platform, "source", "source", "run", "--bootstrap-server", platform.bootstrap,
        "--rate", str(POSTS_PER_SECOND),
    )  # fmt: skip


def _chat_backends(platform: Platform) -> list[Service]:
    return [
        _service(
            platform, f"chat-{number}", "chat", "backend", "--name", f"chat-{number}",
            "--bootstrap-server", platform.bootstrap, "--set", f"group.instance.id=chat-{number}",
        )
        for number in range(CHAT_BACKENDS)
    ]  # fmt: skip


def _gateways(platform: Platform) -> list[Service]:
    """They share one signing key, so a token from one is valid at the other."""
    page = f"http://{platform.address(CHAT_WEB_PORT)}"
    settings = (
        f"zookeeper.connect={platform.zookeeper}",
        f"ws.origins={page},{page.replace(HOST, 'localhost')}",
        f"auth.secret.file={platform.data / 'gateway.key'}",
    )
    return [
        _service(
            platform, f"gateway-{number}", "gateway", "--name", f"gateway-{number}",
            "--listen", platform.address(port), "--bootstrap-server", platform.bootstrap,
            *_set(settings),
        )
        for number, port in enumerate(GATEWAY_PORTS)
    ]  # fmt: skip


def _mail_catcher(platform: Platform) -> Service:
    return _service(
        platform, "mail", "tasks", "mail-catcher", "--listen", platform.address(SMTP_PORT)
    )


def _task_workers(platform: Platform) -> list[Service]:
    _, smtp_port = platform.address(SMTP_PORT).rsplit(":", 1)
    settings = (f"mail.port={smtp_port}", "mail.tls=none")
    return [
        _service(
            platform, f"tasks-{number}", "tasks", "chat-jobs", "--timers",
            "--name", f"tasks-{number}", "--bootstrap-server", platform.bootstrap,
            "--zookeeper-connect", platform.zookeeper, *_set(settings),
        )
        for number in range(TASK_WORKERS)
    ]  # fmt: skip


def _console(platform: Platform) -> Service:
    host, port = platform.address(CONSOLE_PORT).rsplit(":", 1)
    return _service(
        platform, "console", "console", "--host", host, "--port", port,
        "--bootstrap-server", platform.bootstrap, "--coordination", platform.zookeeper,
        "--control", str(control_file(platform.data)),
        "--pipeline-data", str(platform.data / "pipeline"),
        "--chat-url", f"http://{platform.address(CHAT_WEB_PORT)}",
    )  # fmt: skip


def _chat_web(platform: Platform) -> Service:
    gateways = [word for port in GATEWAY_PORTS for word in ("--gateway", platform.address(port))]
    return _service(
        platform, "chat-web", "chat", "web", "--listen", platform.address(CHAT_WEB_PORT), *gateways
    )


def spark_jobs(platform: Platform, *, all_jobs: bool) -> list[Service]:
    """The Spark jobs. Nothing else waits for them."""
    if all_jobs:
        return [_pipeline(platform, ALL_STREAMS, ALL_EVERY_S), _archive(platform)]
    return [_pipeline(platform, LIGHT_STREAMS, LIGHT_EVERY_S)]


def _pipeline(platform: Platform, queries: Sequence[str], every_s: int) -> Service:
    service = _service(
        platform, "pipeline", "pipeline", "run", *queries, "--every", str(every_s),
        "--bootstrap-server", platform.bootstrap, "--master", platform.spark_master or SPARK_MASTER,
    )  # fmt: skip
    service.stage = 3
    service.ready_seconds_max = SPARK_READY_SECONDS
    service.stop_seconds_max = SPARK_STOP_SECONDS
    return service


def _archive(platform: Platform) -> Service:
    """Each run has a Spark of its own, which needs a directory of its own."""
    common = shlex.join(
        (
            *("--data", str(platform.data / "archive"), "--bootstrap-server", platform.bootstrap),
            *("--master", platform.spark_master or SPARK_MASTER),
        )
    )
    jobs = (
        f"pipeline run archive --once --end-with-stdin {common}",
        f"pipeline run quality {common}",
    )
    command = [sys.executable, "-m", "kafkaesque.up.periodic", str(ARCHIVE_EVERY_S), *jobs]
    log = platform.data / "logs" / "archive.log"
    return Service("archive", command, log, stage=3, stop_seconds_max=SPARK_STOP_SECONDS)


def _set(assignments: Sequence[str]) -> list[str]:
    return [word for assignment in assignments for word in ("--set", assignment)]
