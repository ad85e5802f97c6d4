"""Base of the runs that break a cluster: three brokers, three replicas, and what only those show.

Beyond the history: samples of high watermarks and epochs while the run lasts, and a comparison of the
replicas' logs at its end.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Final

from kafkaesque.lab.faults.checks.history import Key
from kafkaesque.lab.faults.cluster_sight import Place
from kafkaesque.lab.faults.cluster_target import BROKERS, ClusterTarget
from kafkaesque.lab.faults.replica_logs import compare_replicas, read_replica
from kafkaesque.lab.faults.stage import FaultRun, RunOptions, Stage
from kafkaesque.lab.faults.target import Target, TargetUnwell
from kafkaesque.lab.faults.watermarks import WatermarkWatch, judge_samples
from kafkaesque.lab.faults.workload import WorkloadSettings

_SERVED_WITHIN_S: Final = 30.0
_POLL_S: Final = 0.005


class ClusterRun(FaultRun):
    """`cluster` is there from `open_target` on."""

    brokers = BROKERS
    cluster: ClusterTarget

    def __init__(self) -> None:
        self._watch: WatermarkWatch | None = None

    def workload(self, options: RunOptions) -> WorkloadSettings:
        return WorkloadSettings(
            records_per_s=options.records_per_s, seed=options.seed, replication_factor=BROKERS
        )

    @contextlib.contextmanager
    def open_target(self, directory: Path, settings: Mapping[str, object]) -> Iterator[Target]:
        self.cluster = self.new_target(directory, settings)
        try:
            yield self.cluster
        finally:
            if self._watch is not None:
                self._watch.end()
            self.cluster.close()

    def new_target(self, directory: Path, settings: Mapping[str, object]) -> ClusterTarget:
        return ClusterTarget(directory, settings, count=self.brokers)

    def begin(self, stage: Stage) -> None:
        partitions = stage.workload.partitions
        self._watch = WatermarkWatch(
            [self.cluster.network.address(node) for node in self.cluster.nodes],
            [partitions.place(key) for key in partitions.keys],
            stage.workload.recorder.now_us,
        )

    # -- for the runs -----------------------------------------------------------------------------

    def leader_of_some_key(self, stage: Stage) -> int:
        key = stage.random.choice(stage.workload.partitions.keys)
        return self.cluster.leader_of(stage.workload.partitions.place(key))

    def keys_led_by(self, stage: Stage, nodes: Collection[int]) -> list[Key]:
        led = self.cluster.partitions()
        partitions = stage.workload.partitions
        return [key for key in partitions.keys if led[partitions.place(key)].leader in nodes]

    def wait_until_served(self, stage: Stage, keys: Collection[Key]) -> None:
        """Until records of each of `keys` are acknowledged that were sent after this call: what was
        under way may have been written before anything broke."""
        recorder = stage.workload.recorder
        since_us, newest_us = recorder.now_us(), recorder.newest_acknowledged_us
        deadline = time.monotonic() + _SERVED_WITHIN_S
        while silent := [key for key in keys if newest_us.get(key, -1) < since_us]:
            if time.monotonic() > deadline:
                seen = self.cluster.partitions()
                raise TargetUnwell(
                    f"nothing was acknowledged for {_SERVED_WITHIN_S:g} s in keys {silent}: {seen}"
                )
            time.sleep(_POLL_S)

    # -- at the end -------------------------------------------------------------------------------

    def complaints(self, stage: Stage) -> list[str]:
        found: list[str] = []
        if self._watch is not None:
            samples = self._watch.end()
            stage.notes["watermarks_sampled"] = len(samples)
            found += judge_samples(samples)
        return found + list(self._compare_replicas(stage))

    def _compare_replicas(self, stage: Stage) -> Iterator[str]:
        places = self.cluster.partitions()
        seen = next(iter(self.cluster.look().values()))
        ends: dict[Place, int] = {}
        for node in self.cluster.awake:
            with contextlib.closing(self.cluster.asker(node)) as asker:
                told = asker.watermarks(places)
            ends |= {place: mark.offset for place, mark in told.items()}
        for node in self.cluster.nodes:
            code = self.cluster.stop(node)
            if code != 0:
                yield f"node {node} ended with exit code {code}"
        for place, one in places.items():
            topic, index = place
            name = f"{topic}-{index}"
            if place not in ends:
                yield f"{name}: nobody told its high watermark at the end"
                continue
            below = f"topics/{seen.topic_ids[topic]}/{index}"
            logs = {node: read_replica(self.cluster.data(node) / below) for node in one.replicas}
            stage.count("batches_compared", sum(len(log.batches) for log in logs.values()))
            yield from compare_replicas(name, logs, ends[place])
