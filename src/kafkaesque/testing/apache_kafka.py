"""A real Apache Kafka on this machine, from Maven artefacts: the oracle and the mark to beat.

Lives here: formatting, starting, watching and stopping KRaft nodes as child processes in a
temporary directory. No expectation about their behaviour lives here (tests/conformance does that)
and nothing of our own broker.

    with ApacheKafka(settings={"num.partitions": "4"}) as kafka:
        Producer({"bootstrap.servers": kafka.bootstrap_servers})

    python -m kafkaesque.testing.apache_kafka --port 19092 --set num.partitions=4
"""

from __future__ import annotations

import base64
import os
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO

import click

from kafkaesque.testing.maven import JavaUnavailable, classpath, require_tool

DEFAULT_VERSION = "4.3.1"
HOST = "127.0.0.1"
READY_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 15.0

# The guard outlives a parent that was killed: its standard input is a pipe from us, so `read` ends
# with success when we say we are done and with failure when we are gone.
_GUARD = 'read -r word || { kill -9 "$@" 2>/dev/null; rm -rf "$KAFKA_DIRECTORY"; }'

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


class ApacheKafkaFailed(Exception):
    """The JVM ended or did not serve in time; the text has the end of its log."""


@dataclass(slots=True)
class _Node:
    """One JVM, broker and controller in one (KRaft's combined mode)."""

    node_id: int
    kafka_port: int
    controller_port: int
    directory: Path
    process: subprocess.Popen[bytes] | None = None

    @property
    def log_file(self) -> Path:
        return self.directory / "server.log"

    @property
    def properties_file(self) -> Path:
        return self.directory / "server.properties"

    def last_words(self) -> str:
        lines: list[str] = []
        for file in (self.log_file, self.directory / "console.log"):
            if file.exists():
                lines += file.read_text(errors="replace").splitlines()[-15:]
        return "\n".join(lines)


class ApacheKafka:
    """One node, or `brokers` combined ones, alive between `start` and `stop`.

    `settings` are server properties by Kafka's names and win over what is set here, which is only
    what a single machine forces: addresses, directories, and replication factors of the internal
    topics no larger than the number of brokers. `port` is the first broker's (the others follow
    it); 0 takes free ones.
    """

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
        self.version = version
        self.brokers = brokers
        self._settings = dict(settings or {})
        self._port = port
        self._heap = heap
        self._log_level = log_level
        self._nodes: list[_Node] = []
        self._directory: Path | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> ApacheKafka:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{HOST}:{node.kafka_port}" for node in self._nodes)

    @property
    def pids(self) -> list[int]:
        return [node.process.pid for node in self._nodes if node.process is not None]

    @property
    def directory(self) -> Path:
        """The temporary directory that holds everything of this run until `stop`."""
        if self._directory is None:
            raise ApacheKafkaFailed("Apache Kafka is not started")
        return self._directory

    def start(self) -> None:
        """Resolve, format, start, and return once every broker answers and knows the others."""
        java = require_tool("java")
        jars = resolve(self.version)
        self._directory = Path(tempfile.mkdtemp(prefix="apache-kafka-"))
        try:
            self._prepare(self._directory)
            for node in self._nodes:
                _require_free(node.kafka_port)
            _format(java, jars, self._nodes)
            for node in self._nodes:
                node.process = self._launch(java, jars, node)
            self._guard = start_guard(self._directory, self.pids)
            deadline = time.monotonic() + READY_TIMEOUT_S
            for node in self._nodes:
                _wait_until_ready(node, len(self._nodes), deadline)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop in order (SIGTERM, then SIGKILL after a while) and remove the directory."""
        processes = [node.process for node in self._nodes if node.process is not None]
        for process in processes:
            process.terminate()
        deadline = time.monotonic() + STOP_TIMEOUT_S
        for process in processes:
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
        if self._guard is not None:
            self._guard.communicate(b"done\n")
        self._nodes, self._directory, self._guard = [], None, None

    def kill(self, node_index: int) -> None:
        """kill -9 of one node, for those who measure what comes after."""
        process = self._nodes[node_index].process
        if process is not None:
            process.kill()
            process.wait()

    def cpu_seconds(self) -> float:
        """User and system time of all nodes so far (Linux)."""
        ticks = 0
        for pid in self.pids:
            # Fields after the command name, which is in parentheses and may hold spaces.
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def rss_bytes(self) -> int:
        """Resident memory of all nodes now (Linux)."""
        pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in self.pids)
        return pages * os.sysconf("SC_PAGE_SIZE")

    def _prepare(self, directory: Path) -> None:
        ports = _free_ports(2 * self.brokers)
        kafka_ports, controller_ports = ports[: self.brokers], ports[self.brokers :]
        if self._port != 0:
            kafka_ports = [self._port + index for index in range(self.brokers)]
        voters = ",".join(f"{n + 1}@{HOST}:{port}" for n, port in enumerate(controller_ports))
        self._nodes = [
            _Node(n + 1, kafka_ports[n], controller_ports[n], directory / f"node-{n + 1}")
            for n in range(self.brokers)
        ]
        for node in self._nodes:
            node.directory.mkdir()
            properties = _properties(node, voters, self.brokers) | self._settings
            node.properties_file.write_text(
                "".join(f"{name}={value}\n" for name, value in properties.items())
            )
            (node.directory / "log4j2.properties").write_text(
                _LOG4J2.format(file=node.log_file, level=self._log_level)
            )

    def _launch(self, java: str, jars: str, node: _Node) -> subprocess.Popen[bytes]:
        with (node.directory / "console.log").open("ab") as console:
            return subprocess.Popen(
                [
                    java,
                    f"-Xmx{self._heap}",
                    f"-Xms{self._heap}",
                    "-XX:+UseG1GC",
                    f"-Dlog4j2.configurationFile={node.directory / 'log4j2.properties'}",
                    "-cp",
                    jars,
                    "kafka.Kafka",
                    str(node.properties_file),
                ],
                cwd=node.directory,
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
                # A session of its own: Ctrl-C reaches us, and we stop it in order.
                start_new_session=True,
            )


def resolve(version: str) -> str:
    """The classpath of that Apache Kafka, fetched if it is not here yet."""
    return classpath(
        (
            f"org.apache.kafka:kafka_2.13:{version}",
            f"org.apache.kafka:kafka-tools:{version}",
            # Kafka's artefacts leave the logging binding to the distribution.
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
                f"-Dlog4j2.configurationFile={node.directory / 'log4j2.properties'}",
                "-cp",
                jars,
                "kafka.tools.StorageTool",
                "format",
                f"--cluster-id={cluster_id}",  # one word: an id may begin with a dash
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
            raise ApacheKafkaFailed(f"formatting the storage failed:\n{outcome.stdout}")


def start_guard(directory: Path, pids: Sequence[int]) -> subprocess.Popen[bytes]:
    """A shell that kills `pids` and removes `directory` should we die; `b"done\\n"` dismisses it."""
    return subprocess.Popen(
        ["/bin/sh", "-c", _GUARD, "apache-kafka-guard", *map(str, pids)],
        env={"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "KAFKA_DIRECTORY": str(directory)},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _free_ports(count: int) -> list[int]:
    # All are held before any is let go, so that they differ.
    held: list[socket.socket] = []
    try:
        for _ in range(count):
            listener = socket.socket()
            held.append(listener)
            listener.bind((HOST, 0))
        return [int(listener.getsockname()[1]) for listener in held]
    finally:
        for listener in held:
            listener.close()


def _require_free(port: int) -> None:
    """Somebody else on the port would answer in the node's place, and pass for it."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise ApacheKafkaFailed(
                f"port {port} is in use: choose another, or 0 for a free one"
            ) from error


def _wait_until_ready(node: _Node, brokers: int, deadline: float) -> None:
    """Ask for metadata until the node lists all brokers; a dead JVM or the deadline ends it."""
    pause_s = 0.02
    while True:
        if node.process is None or node.process.poll() is not None:
            raise ApacheKafkaFailed(f"node {node.node_id} ended at once:\n{node.last_words()}")
        if _known_brokers(node.kafka_port) >= brokers:
            return
        if time.monotonic() > deadline:
            raise ApacheKafkaFailed(
                f"node {node.node_id} not ready after {READY_TIMEOUT_S:.0f} s:\n{node.last_words()}"
            )
        time.sleep(pause_s)
        pause_s = min(0.2, pause_s * 1.5)


def _known_brokers(port: int) -> int:
    """How many brokers this one lists in a Metadata v1 answer; 0 while it does not answer."""
    client_id = b"ready?"
    # api_key 3, version 1, correlation id 1, client id; then an empty topic list: brokers only.
    body = struct.pack(f">hhih{len(client_id)}si", 3, 1, 1, len(client_id), client_id, 0)
    try:
        with socket.create_connection((HOST, port), timeout=5) as link:
            link.sendall(struct.pack(">i", len(body)) + body)
            with link.makefile("rb") as answer:
                size, _correlation_id, count = struct.unpack(">iii", _read(answer, 12))
                _read(answer, size - 8)
    except (OSError, EOFError):
        return 0
    return int(count)


def _read(stream: IO[bytes], size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise EOFError
    return data


@click.command(help="Run an Apache Kafka in the foreground until Ctrl-C.")
@click.option("--version", default=DEFAULT_VERSION, show_default=True)
@click.option("--port", default=0, help="First broker's port; 0 takes a free one.")
@click.option("--brokers", default=1, show_default=True)
@click.option("--heap", default="1g", show_default=True, help="Heap of each JVM.")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="Server property.")
def main(version: str, port: int, brokers: int, heap: str, settings: tuple[str, ...]) -> None:
    pairs = dict(setting.split("=", 1) for setting in settings if "=" in setting)
    if len(pairs) < len(settings):
        raise click.UsageError("--set takes NAME=VALUE")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with ApacheKafka(version, pairs, brokers=brokers, port=port, heap=heap) as kafka:
            pids = ",".join(map(str, kafka.pids))
            click.echo(f"ready kafka={kafka.bootstrap_servers} pid={pids}")
            signal.pause()
    except KeyboardInterrupt:
        click.echo("stopped", err=True)
    except (ApacheKafkaFailed, JavaUnavailable) as error:
        raise click.ClickException(str(error)) from error


if __name__ == "__main__":
    main()
