"""Base classes of the runs against a cluster.

`ClusterRun` adds what only a cluster can show: samples of high watermarks and leader epochs while the run
lasts, and a comparison of the replicas' logs at its end. `ShimmedRun` preloads a library of ours into
every broker.
"""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final, Generic, Protocol, TypeVar
from uuid import UUID

from kafkaesque.lab.faults import shims
from kafkaesque.lab.faults.checks.history import Key
from kafkaesque.lab.faults.fault_run import FaultRun, FaultRunContext, FaultRunOptions
from kafkaesque.lab.faults.log_files import compare_replicas, read_replica
from kafkaesque.lab.faults.watermarks import WatermarkSampler, check_samples
from kafkaesque.lab.faults.workload import WorkloadSettings
from kafkaesque.lab.harness.broker_admin import Place
from kafkaesque.lab.harness.cluster import (
    BROKERS,
    BrokerCluster,
    BrokerSettings,
    Target,
    TargetFailed,
)
from kafkaesque.testing.waiting import poll_until

_SERVED_WITHIN_S: Final = 30.0
_POLL_S: Final = 0.005


class ClusterRun(FaultRun):
    """A run against `brokers` brokers. `cluster` exists from `open_target` on."""

    brokers = BROKERS
    cluster: BrokerCluster

    def __init__(self) -> None:
        self._sampler: WatermarkSampler | None = None

    def workload(self, options: FaultRunOptions) -> WorkloadSettings:
        return WorkloadSettings(
            records_per_s=options.records_per_s, seed=options.seed, replication_factor=BROKERS
        )

    @contextlib.contextmanager
    def open_target(self, directory: Path, settings: BrokerSettings) -> Iterator[Target]:
        self.cluster = self.new_cluster(directory, settings)
        try:
            yield self.cluster
        finally:
            if self._sampler is not None:
                self._sampler.end()
            self.cluster.close()

    def new_cluster(self, directory: Path, settings: BrokerSettings) -> BrokerCluster:
        return BrokerCluster(directory, settings, count=self.brokers)

    def begin(self, context: FaultRunContext) -> None:
        partitions = context.workload.partitions
        self._sampler = WatermarkSampler(
            [self.cluster.address(node) for node in self.cluster.nodes],
            [partitions.place(key) for key in partitions.keys],
            context.workload.recorder.now_us,
        )

    # -- for the runs -----------------------------------------------------------------------------

    def leader_of_some_key(self, context: FaultRunContext) -> int:
        key = context.random.choice(context.workload.partitions.keys)
        return self.cluster.wait_for_leader(context.workload.partitions.place(key))

    def keys_led_by(self, context: FaultRunContext, nodes: Collection[int]) -> list[Key]:
        led = self.cluster.partitions()
        partitions = context.workload.partitions
        return [key for key in partitions.keys if led[partitions.place(key)].leader in nodes]

    def wait_until_served(
        self, context: FaultRunContext, keys: Collection[Key] | None = None
    ) -> None:
        """Wait until each of `keys` (default: all) has acknowledged a record sent after this call.

        Records that were in flight before may have been written before the fault.
        """
        recorder = context.workload.recorder
        wanted = context.workload.partitions.keys if keys is None else keys
        since_us, newest_us = recorder.now_us(), recorder.newest_acknowledged_us

        def silent() -> list[Key]:
            return [key for key in wanted if newest_us.get(key, -1) < since_us]

        poll_until(
            lambda: not silent(),
            lambda: f"acknowledgements in keys {silent()}: {self.cluster.partitions()}",
            _SERVED_WITHIN_S,
            poll_s=_POLL_S,
            error=TargetFailed,
        )

    # -- at the end -------------------------------------------------------------------------------

    def complaints(self, context: FaultRunContext) -> list[str]:
        found: list[str] = []
        if self._sampler is not None:
            samples = self._sampler.end()
            context.notes["watermarks_sampled"] = len(samples)
            found += check_samples(samples)
        return found + list(self._compare_replicas(context))

    def _compare_replicas(self, context: FaultRunContext) -> Iterator[str]:
        partitions = self.cluster.partitions()
        high_watermarks: dict[Place, int] = {}
        topic_ids: dict[str, UUID] = {}
        for node in self.cluster.awake:
            with contextlib.closing(self.cluster.admin(node)) as admin:
                topic_ids = admin.topic_ids()
                answered = admin.watermarks(partitions)
            high_watermarks |= {place: mark.offset for place, mark in answered.items()}
        for node in self.cluster.nodes:
            code = self.cluster.terminate(node)
            if code != 0:
                yield f"node {node} ended with exit code {code}"
        for place, partition in partitions.items():
            topic, index = place
            name = f"{topic}-{index}"
            if place not in high_watermarks:
                yield f"{name}: no broker reported its high watermark at the end"
                continue
            below = f"topics/{topic_ids[topic]}/{index}"
            logs = {
                node: read_replica(self.cluster.data(node) / below) for node in partition.replicas
            }
            context.count("batches_compared", sum(len(log.batches) for log in logs.values()))
            yield from compare_replicas(name, logs, high_watermarks[place])


class Shim(Protocol):
    """The control of one broker's preloaded library."""

    environment: dict[str, str]
    """Environment variables the broker runs with."""


S = TypeVar("S", bound=Shim)


class ShimmedRun(ClusterRun, Generic[S]):
    """A run whose brokers have a library of ours preloaded. `shims`, by node, from `open_target` on."""

    def __init__(self) -> None:
        super().__init__()
        self.shims: list[S] = []

    @abstractmethod
    def new_shim(self, directory: Path, node: int) -> S:
        """The shim of one broker; `directory` is the cluster's."""

    def impossible(self) -> str | None:
        return shims.impossible()

    def new_cluster(self, directory: Path, settings: BrokerSettings) -> BrokerCluster:
        self.shims = [self.new_shim(directory, node) for node in range(self.brokers)]
        return BrokerCluster(
            directory,
            settings,
            count=self.brokers,
            environment=lambda node: self.shims[node].environment,
        )
