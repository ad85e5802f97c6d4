"""Clusters of three brokers under test: ours and Apache Kafka.

A cluster is a `Peer` like any other; its CPU is that of all its brokers.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

from kafkaesque.lab.bench import requests
from kafkaesque.lab.bench.peers import (
    KAFKA_VERSION_DEFAULT,
    READY_TIMEOUT_S,
    Peer,
    PeerFailed,
    PeerOptions,
    checkout_environment,
    describe_checkout,
    is_checkout,
    peer_label,
)
from kafkaesque.lab.bench.raw_load import LoadFailed
from kafkaesque.lab.bench.routing import partitions_of
from kafkaesque.lab.harness import proc
from kafkaesque.lab.harness.metrics import Scrape, scrape
from kafkaesque.model.address import parse_address
from kafkaesque.testing.broker_process import BrokerNotReady
from kafkaesque.testing.cluster_layout import Layout
from kafkaesque.testing.cluster_processes import BrokerProcesses
from kafkaesque.testing.waiting import poll_until

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
        # A broker may report a leader before it has learned that this leader is up.
        poll_until(
            lambda: all(self._led_count(one, name) >= partitions for one in self.addresses),
            f"{self.name}: a leader of every partition of {name}",
            LEADER_TIMEOUT_S,
            poll_s=POLL_S,
            error=LoadFailed,
        )
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


class OurCluster(ClusterPeer):
    """Three processes of `kafkaesque broker`."""

    name = "ours"

    def __init__(self, options: PeerOptions, environment: Mapping[str, str] | None = None) -> None:
        """`environment` has further variables for the brokers."""
        super().__init__(options)
        flush = "always" if options.durable else "never"
        layout = Layout(options.directory, BROKERS, {**STEADY, **options.settings, "flush": flush})
        self._brokers = BrokerProcesses(
            layout,
            # Empty counts as unset: Python may cache bytecode, as in an installed package.
            lambda _: {"PYTHONDONTWRITEBYTECODE": "", **(environment or {})},
            options=("--log-level", "warning"),
            ready_seconds_max=READY_TIMEOUT_S,
        )
        self.addresses = tuple(layout.address(number) for number in range(BROKERS))
        self.host, self.port = parse_address(self.addresses[0])

    def start(self) -> None:
        self.launch()
        self.wait_ready()
        try:
            # The brokers of a new cluster become voters one after the other.
            self._brokers.wait_until_joined(within=LEADER_TIMEOUT_S)
        except TimeoutError as error:
            raise PeerFailed(str(error)) from error

    def stop(self) -> None:
        self._brokers.close()

    def kill(self, *numbers: int) -> None:
        """kill -9 these brokers, without numbers all."""
        self._brokers.kill(*(numbers or range(BROKERS)))

    def wipe(self, number: int) -> None:
        """Remove the data of a broker that was killed."""
        self._brokers.wipe(number)

    def launch(self, *numbers: int) -> None:
        """Start these brokers, without numbers all, and do not wait for them."""
        self._brokers.launch(*(numbers or range(BROKERS)))

    def wait_ready(self, *numbers: int) -> None:
        try:
            self._brokers.wait_ready(*(numbers or range(BROKERS)))
        except BrokerNotReady as error:
            raise PeerFailed(str(error)) from error

    def facts(self, number: int) -> Mapping[str, str]:
        """The values of one broker's `ready` line."""
        return self._brokers.process(number).facts

    def scrape(self, number: int) -> Scrape:
        return scrape(self.facts(number)["http"])

    def _pids_of(self, number: int) -> Sequence[int]:
        if number not in self._brokers.running:
            return ()
        return proc.descendants(self._brokers.process(number).pid)

    @property
    def pids(self) -> Sequence[int]:
        return [pid for number in range(BROKERS) for pid in self._pids_of(number)]

    def cpu_seconds_each(self) -> list[float]:
        return [proc.cpu_seconds(self._pids_of(number)) for number in range(BROKERS)]

    def rss_bytes_each(self) -> list[int]:
        return [proc.rss_bytes(self._pids_of(number)) for number in range(BROKERS)]

    @property
    def described(self) -> str:
        flush = "always (synced on a majority)" if self.options.durable else "never"
        return f"kafkaesque {version('kafkaesque-platform')}, {BROKERS} brokers, flush={flush}"


class CheckoutCluster(OurCluster):
    """Three brokers of another version: see `peers.Checkout`."""

    def __init__(self, options: PeerOptions, checkout: Path) -> None:
        self.name = peer_label(str(checkout))
        self._checkout = checkout
        own = replace(options, directory=options.directory / self.name)
        super().__init__(own, checkout_environment(checkout))

    @property
    def described(self) -> str:
        flush = "always (synced on a majority)" if self.options.durable else "never"
        return (
            f"kafkaesque of {describe_checkout(self._checkout)}, {BROKERS} brokers, flush={flush}"
        )


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
        self.host, self.port = parse_address(self.addresses[0])

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
    if is_checkout(name):
        return CheckoutCluster(options, Path(name))
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
    """One cluster of ours, until the end of the `with`."""
    named = {name.replace("_", "."): value for name, value in settings.items()}
    cluster = OurCluster(PeerOptions(directory, durable=durable, settings=named))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
        shutil.rmtree(directory, ignore_errors=True)
