"""A real Apache Kafka on this machine, from Maven artifacts, to compare with.

Configures, formats and starts KRaft nodes and waits until they are ready; `java_server` has the rest.
Expectations about Kafka's behaviour are in tests/conformance.

    with ApacheKafka(settings={"num.partitions": "4"}) as kafka:
        Producer({"bootstrap.servers": kafka.bootstrap_servers})

    python -m kafkaesque.testing.apache_kafka --port 19092 --set num.partitions=4
"""

from __future__ import annotations

import base64
import os
import subprocess
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click

from kafkaesque.client.wire.blocking import BlockingConnection
from kafkaesque.client.wire.errors import ConnectionLost
from kafkaesque.model.address import Address
from kafkaesque.service.child_process import log_tail
from kafkaesque.testing.java_server import (
    HOST,
    JavaServer,
    JavaServerFailed,
    console_log,
    read_properties,
    run_in_foreground,
    take_port,
    wait_until_serving,
    write_properties,
)
from kafkaesque.testing.maven import classpath
from kafkaesque.testing.reserved_ports import ReservedPorts
from kafkaesque.wire.messages.metadata import MetadataRequest, MetadataResponse

DEFAULT_VERSION = "4.3.1"
READY_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 15.0
METADATA_VERSION = 1
METADATA_TIMEOUT_S = 5.0

_LOG4J2 = """\
status = error
appender.file.type = File
appender.file.name = file
appender.file.fileName = {file}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = [%d] %p %m (%c)%n
rootLogger.level = {level}
rootLogger.appenderRef.file.ref = file
"""


@dataclass(frozen=True, slots=True)
class _Node:
    """One JVM that is broker and controller (KRaft's combined mode)."""

    node_id: int
    kafka_port: int
    controller_port: int
    directory: Path

    @property
    def log_file(self) -> Path:
        return self.directory / "server.log"

    @property
    def properties_file(self) -> Path:
        return self.directory / "server.properties"

    @property
    def log_option(self) -> str:
        return f"-Dlog4j2.configurationFile={self.directory / 'log4j2.properties'}"

    def log_tail(self) -> str:
        return f"node {self.node_id}: {log_tail(self.log_file, console_log(self.directory))}"


class ApacheKafka(JavaServer):
    """One node, or a cluster of `brokers` combined nodes.

    `settings` are server properties and override the defaults here, which are only what running on
    one machine requires: addresses, directories, and replication factors of the internal topics no
    larger than the number of brokers. `port` is the first broker's (the others use the following
    ones); 0 takes free ports.
    """

    kind = "apache-kafka"
    stop_timeout_s = STOP_TIMEOUT_S

    def __init__(
        self,
        version: str = DEFAULT_VERSION,
        settings: Mapping[str, str] | None = None,
        *,
        brokers: int = 1,
        port: int = 0,
        heap: str = "1g",
        log_level: str = "warn",
    ) -> None:
        super().__init__()
        self.version = version
        self.brokers = brokers
        self._settings = dict(settings or {})
        self._port = port
        self._heap = heap
        self._log_level = log_level
        self._nodes: list[_Node] = []
        self._ports = ReservedPorts()

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{HOST}:{node.kafka_port}" for node in self._nodes)

    def _resolve(self) -> str:
        return resolve(self.version)

    def _launch_all(self, java: str, jars: str, directory: Path) -> None:
        self._prepare(directory)
        for node in self._nodes:
            take_port(node.kafka_port)
        _format(java, jars, self._nodes)
        for node in self._nodes:
            options = [f"-Xmx{self._heap}", f"-Xms{self._heap}", "-XX:+UseG1GC", node.log_option]
            main = ["kafka.Kafka", str(node.properties_file)]
            self._launch(java, jars, node.directory, options, main)

    def _wait_until_ready(self) -> None:
        """Until every broker answers and lists the others."""
        deadline_s = time.monotonic() + READY_TIMEOUT_S
        for node, process in zip(self._nodes, self._processes, strict=True):
            wait_until_serving(
                partial(_lists_brokers, node.kafka_port, self.brokers),
                process,
                deadline_s,
                node.log_tail,
            )

    def stop(self) -> None:
        super().stop()
        self._nodes = []
        self._ports.close()

    def kill(self, node_index: int) -> None:
        """kill -9 one node."""
        self._processes[node_index].kill()
        self._processes[node_index].wait()

    def cpu_seconds(self) -> float:
        """User and system CPU time of all nodes (Linux)."""
        ticks = 0
        for pid in self.pids:
            # The fields after the command name, which is in parentheses and may contain spaces.
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def rss_bytes(self) -> int:
        """Resident memory of all nodes (Linux)."""
        pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in self.pids)
        return pages * os.sysconf("SC_PAGE_SIZE")

    def _prepare(self, directory: Path) -> None:
        controller_ports = self._ports.take(self.brokers)
        if self._port == 0:
            kafka_ports = self._ports.take(self.brokers)
        else:
            kafka_ports = tuple(self._port + index for index in range(self.brokers))
        voters = ",".join(f"{n + 1}@{HOST}:{port}" for n, port in enumerate(controller_ports))
        self._nodes = [
            _Node(n + 1, kafka_ports[n], controller_ports[n], directory / f"node-{n + 1}")
            for n in range(self.brokers)
        ]
        for node in self._nodes:
            node.directory.mkdir()
            properties = _properties(node, voters, self.brokers) | self._settings
            write_properties(node.properties_file, properties)
            (node.directory / "log4j2.properties").write_text(
                _LOG4J2.format(file=node.log_file, level=self._log_level)
            )


def resolve(version: str) -> str:
    """The classpath of that version; jars are fetched if they are not in the local repository."""
    return classpath(
        (
            f"org.apache.kafka:kafka_2.13:{version}",
            f"org.apache.kafka:kafka-tools:{version}",
            # Kafka's artifacts leave the logging binding to the distribution.
            "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4",
        )
    )


def _properties(node: _Node, voters: str, brokers: int) -> dict[str, str]:
    replicas = str(min(3, brokers))
    return {
        "process.roles": "broker,controller",
        "node.id": str(node.node_id),
        "listeners": f"PLAINTEXT://{HOST}:{node.kafka_port},"
        f"CONTROLLER://{HOST}:{node.controller_port}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{node.kafka_port}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.quorum.voters": voters,
        "log.dirs": str(node.directory / "data"),
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": str(min(2, brokers)),
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": str(min(2, brokers)),
    }


def _format(java: str, jars: str, nodes: Sequence[_Node]) -> None:
    cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    for node in nodes:
        outcome = subprocess.run(
            [
                java,
                "-XX:TieredStopAtLevel=1",
                node.log_option,
                "-cp",
                jars,
                "kafka.tools.StorageTool",
                "format",
                f"--cluster-id={cluster_id}",  # one argument: an id may begin with a dash
                "--config",
                str(node.properties_file),
            ],
            cwd=node.directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=READY_TIMEOUT_S,
            check=False,
        )
        if outcome.returncode != 0:
            raise JavaServerFailed(f"formatting the storage failed:\n{outcome.stdout}")


def _lists_brokers(port: int, brokers: int) -> bool:
    return _broker_count(port) >= brokers


def _broker_count(port: int) -> int:
    """How many brokers the one at `port` lists; 0 if it does not answer."""
    try:
        with BlockingConnection(
            Address(HOST, port), timeout_s=METADATA_TIMEOUT_S, negotiates=False
        ) as connection:
            # An empty list of topics: brokers only.
            answer = connection.call(
                MetadataRequest(topics=[]), MetadataResponse, version=METADATA_VERSION
            )
    except ConnectionLost:
        return 0
    return len(answer.brokers)


@click.command(help="Run an Apache Kafka in the foreground until Ctrl-C.")
@click.option("--version", default=DEFAULT_VERSION, show_default=True)
@click.option("--port", default=0, help="First broker's port; 0 takes a free one.")
@click.option("--brokers", default=1, show_default=True)
@click.option("--heap", default="1g", show_default=True, help="Heap of each JVM.")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="Server property.")
def main(version: str, port: int, brokers: int, heap: str, settings: tuple[str, ...]) -> None:
    pairs = read_properties(settings)
    server = ApacheKafka(version, pairs, brokers=brokers, port=port, heap=heap)
    run_in_foreground(server, lambda: {"kafka": server.bootstrap_servers})


if __name__ == "__main__":
    main()
