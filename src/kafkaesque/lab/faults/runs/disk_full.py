"""The disk of one broker of three is full for a while, a leader's or a follower's."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from kafkaesque.lab.faults import small_disk
from kafkaesque.lab.faults.cluster_run import ClusterRun
from kafkaesque.lab.faults.runs.single_disk_full import make_room
from kafkaesque.lab.faults.stage import Stage
from kafkaesque.lab.faults.target import Target, TargetUnwell

_FULL_S_MIN: Final = 2.0
_FULL_S_MAX: Final = 4.0
_MADE_WITHIN_S: Final = 20.0


class Run(ClusterRun):
    purpose = "leave no byte free on one broker's disk for up to 4 s, then make room"
    promise = "the others serve meanwhile, it comes back by itself; nothing is lost or repeated"

    def impossible(self) -> str | None:
        return small_disk.impossible()

    @contextlib.contextmanager
    def open_target(self, directory: Path, settings: Mapping[str, object]) -> Iterator[Target]:
        with contextlib.ExitStack() as disks:
            for node in range(self.brokers):
                place = directory / f"broker-{node}" / "data"
                disks.enter_context(small_disk.small_disk(place))
            with super().open_target(directory, settings) as target:
                yield target

    def inject(self, stage: Stage) -> None:
        while stage.another_round(0.5, 2.0):
            node = stage.random.choice(self.cluster.nodes)
            keys = self.keys_led_by(stage, [node])
            stage.fault(f"the disk of node {node} is full, which leads keys {keys}", keys)
            room_at = time.monotonic() + stage.random.uniform(_FULL_S_MIN, _FULL_S_MAX)
            small_disk.fill(self.cluster.data(node))
            stage.count("times_full")
            self.wait_until_served(stage, stage.workload.partitions.keys)
            self._make_topic(stage, node)
            time.sleep(max(0.0, room_at - time.monotonic()))
            make_room(stage, node)
            self.cluster.wait_whole()

    def _make_topic(self, stage: Stage, full: int) -> None:
        """The full one is to have a replica of it, and cannot even write that it shall."""
        other = stage.random.choice([node for node in self.cluster.nodes if node != full])
        stage.count("topics_made")
        name = f"meanwhile-{stage.notes['topics_made']}"
        with contextlib.closing(self.cluster.asker(other, _MADE_WITHIN_S)) as asker:
            refusal = asker.create_topic(name, self.brokers)
        if refusal is not None:
            raise TargetUnwell(f"{name} could not be made: {refusal}")

    def complaints(self, stage: Stage) -> list[str]:
        found = super().complaints(stage)
        if not any("No space left" in self.cluster.log_text(node) for node in self.cluster.nodes):
            found.append("no broker's log tells of a full disk")
        return found
