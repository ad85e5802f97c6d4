"""Clusters of three brokers under test: ours and Apache Kafka.

A cluster is a `Peer` like any other; its CPU is that of all its brokers.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

from kafkaesque.lab.bench import requests
from kafkaesque.lab.bench.peers import (
    KAFKA_VERSION_DEFAULT,
    Peer,
    PeerFailed,
    PeerOptions,
    ScriptPeer,
)
from kafkaesque.lab.bench.raw_load import LoadFailed
from kafkaesque.lab.bench.routing import partitions_of
from kafkaesque.lab.harness import proc
from kafkaesque.lab.harness.metrics import Scrape, scrape
from kafkaesque.testing.reserved_ports import HOST, ReservedPorts

BROKERS = 3
REPLICAS = 3
LEADER_TIMEOUT_S = 120.0
POLL_S = 0.02
STEADY: Mapping[str, str] = {"auto.leader.rebalance.enable": "false"}
"""Leadership must not move during a measurement."""


class ClusterPeer(Peer):
    """All brokers of one cluster; `host` and `port` are the first one's."""

    addresses: tuple[str, ...] = ()

    @property
    def bootstrap(self) -> str:
        return ",".join(self.addresses)

    def create_topic(
        self, name: str, partitions: int, configs: Mapping[str, str] | None = None
    ) -> float:
        """Create a topic; returns the seconds until every broker reports a leader of every partition."""
        started = time.perf_counter()
        requests.create_topic(
            self.host, self.port, name, partitions, configs, replication_factor=REPLICAS
        )
        deadline = time.monotonic() + LEADER_TIMEOUT_S
        # A broker may report a leader before it has learned that this leader is up.
        while any(self._led_count(address, name) < partitions for address in self.addresses):
            if time.monotonic() > deadline:
                raise LoadFailed(f"{self.name}: not every partition of {name} got a leader")
            time.sleep(POLL_S)
        return time.perf_counter() - started

    @staticmethod
    def _led_count(address: str, topic: str) -> int:
        return sum(bool(row.leader) for row in partitions_of(address, topic))

    def delete_topic(self, name: str) -> None:
        requests.delete_topic(self.host, self.port, name)

    def leaders(self, topic: str) -> list[str]:
        """The address of each partition's leader."""
        rows = partitions_of(self.addresses[0], topic)
        if not rows or not all(row.leader for row in rows):
            raise LoadFailed(f"{self.name}: {topic} has partitions without a leader")
        return [row.leader for row in rows]


class _Member(ScriptPeer):
    """One of our brokers: the first founds the cluster, the others join it."""

    ends_with_stdin = True

    def __init__(self, options: PeerOptions, number: int, addresses: Sequence[str]) -> None:
        self.name = f"ours-{number}"
        super().__init__(options)
        self._number = number
        self._address = addresses[number]
        self._others = [address for address in addresses if address != self._address]

    @property
    def http_address(self) -> str:
        return self.facts["http"]

    def command(self) -> list[str]:
        settings = {**STEADY, **self.options.settings}
        settings["flush"] = "always" if self.options.durable else "never"
        command = [sys.executable, "-m", "kafkaesque.cli.main", "broker"]
        command += ["--node-id", str(self._number), "--data", str(self.data)]
        command += ["--listen", self._address, "--log-level", "warning", "--end-with-stdin"]
        if self._number != 0 or self._was_founded:
            command += ["--join", ",".join(self._others)]
        return command + [part for item in settings.items() for part in ("--set", "=".join(item))]

    @property
    def _was_founded(self) -> bool:
        return any((self.options.directory / f"ours-{number}").exists() for number in range(1, 9))

    @property
    def described(self) -> str:
        return self.name

    def wipe(self) -> None:
        shutil.rmtree(self.data)


class OurCluster(ClusterPeer):
    """`kafkaesque broker --join`, three times."""

    name = "ours"

    def __init__(self, options: PeerOptions) -> None:
        super().__init__(options)
        self._ports = ReservedPorts(BROKERS)
        self.addresses = tuple(f"{HOST}:{port}" for port in self._ports.numbers)
        self.host, self.port = HOST, self._ports.numbers[0]
        self.members = [_Member(options, number, self.addresses) for number in range(BROKERS)]

    def start(self) -> None:
        self.options.directory.mkdir(parents=True, exist_ok=True)
        self.members[0].start()
        for member in self.members[1:]:
            member.start()
        self._wait_until_joined()

    def _wait_until_joined(self) -> None:
        deadline = time.monotonic() + LEADER_TIMEOUT_S
        # The brokers of a new cluster become voters one after the other.
        while any(
            self.scrape(number).sum("kafkaesque_link_up") < BROKERS - 1 for number in (0, 1, 2)
        ):
            if time.monotonic() > deadline:
                raise PeerFailed("the brokers did not connect to each other")
            time.sleep(POLL_S)

    def stop(self) -> None:
        for member in self.members:
            member.kill()
        self._ports.close()

    def kill(self, *numbers: int) -> None:
        for number in numbers or range(BROKERS):
            self.members[number].kill()

    def launch(self, *numbers: int) -> None:
        """Start brokers again without waiting for them."""
        for number in numbers or range(BROKERS):
            self.members[number].launch()

    def wait_ready(self, *numbers: int) -> None:
        for number in numbers or range(BROKERS):
            self.members[number].wait_ready()

    def scrape(self, number: int) -> Scrape:
        return scrape(self.members[number].http_address)

    @property
    def pids(self) -> Sequence[int]:
        return [pid for member in self.members for pid in member.pids]

    def cpu_seconds_each(self) -> list[float]:
        return [proc.cpu_seconds(member.pids) for member in self.members]

    def rss_bytes_each(self) -> list[int]:
        return [proc.rss_bytes(member.pids) for member in self.members]

    @property
    def described(self) -> str:
        flush = "always (synced on a majority)" if self.options.durable else "never"
        return f"kafkaesque {version('kafkaesque-platform')}, {BROKERS} brokers, flush={flush}"


class KafkaCluster(ClusterPeer):
    """Three combined KRaft nodes of Apache Kafka, with their own defaults."""

    name = "kafka"

    def __init__(self, options: PeerOptions, kafka_version: str = KAFKA_VERSION_DEFAULT) -> None:
        super().__init__(options)
        from kafkaesque.testing.apache_kafka import ApacheKafka

        settings = {**STEADY, **options.settings}
        if options.durable:
            settings["log.flush.interval.messages"] = "1"
        self._kafka = ApacheKafka(kafka_version, settings, brokers=BROKERS)

    def start(self) -> None:
        from kafkaesque.testing.java_server import JavaServerFailed
        from kafkaesque.testing.maven import JavaUnavailable

        try:
            self._kafka.start()
        except (JavaServerFailed, JavaUnavailable) as error:
            raise PeerFailed(str(error)) from error
        self.addresses = tuple(self._kafka.bootstrap_servers.split(","))
        self.host, _, port = self.addresses[0].rpartition(":")
        self.port = int(port)

    def stop(self) -> None:
        self._kafka.stop()

    @property
    def pids(self) -> Sequence[int]:
        return self._kafka.pids

    @property
    def described(self) -> str:
        sync = "flush.messages=1" if self.options.durable else "its default flush"
        return f"Apache Kafka {self._kafka.version}, {BROKERS} combined KRaft nodes, {sync}"


def make_cluster(name: str, options: PeerOptions) -> ClusterPeer:
    kinds: dict[str, type[ClusterPeer]] = {"ours": OurCluster, "kafka": KafkaCluster}
    return kinds[name](options)


@contextlib.contextmanager
def running_clusters(names: Sequence[str], options: PeerOptions) -> Iterator[list[ClusterPeer]]:
    """All clusters run at once, until the end of the `with`. There is no floor peer for three brokers."""
    clusters: list[ClusterPeer] = []
    try:
        for name in names:
            if name == "floor":
                continue
            clusters.append(make_cluster(name, options))
            clusters[-1].start()
        yield clusters
    finally:
        for cluster in clusters:
            cluster.stop()
        shutil.rmtree(options.directory, ignore_errors=True)


@contextlib.contextmanager
def our_cluster(directory: Path, *, durable: bool = False, **settings: str) -> Iterator[OurCluster]:
    """A cluster of ours alone."""
    named = {name.replace("_", "."): value for name, value in settings.items()}
    cluster = OurCluster(PeerOptions(directory, durable=durable, settings=named))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
        shutil.rmtree(directory, ignore_errors=True)
