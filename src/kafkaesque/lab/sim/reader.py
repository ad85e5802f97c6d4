"""A consumer of one partition: reads what may be read, wherever it is told that a leader is."""

from __future__ import annotations

from random import Random
from typing import Protocol

from kafkaesque.lab.sim.schedule import Schedule
from kafkaesque.model.ids import GroupId, NodeId, Offset


class Cluster(Protocol):
    def read(
        self, node: NodeId, group: GroupId, offset: Offset, floor: Offset
    ) -> Offset | None: ...

    def guess_leader(self, group: GroupId, random: Random) -> NodeId: ...

    def acknowledged_offset(self, group: GroupId) -> Offset: ...


class SimulatedReader:
    """Asks for a part of the log now and then; the checkers judge what it gets."""

    def __init__(
        self, group: GroupId, cluster: Cluster, schedule: Schedule, random: Random
    ) -> None:
        self.read_count = 0
        self._group = group
        self._cluster = cluster
        self._schedule = schedule
        self._random = random
        self._seen = Offset(0)

    def start(self, interval_us: int) -> None:
        self._schedule.after(self._random.randrange(interval_us), lambda: self._beat(interval_us))

    def _beat(self, interval_us: int) -> None:
        target = self._cluster.guess_leader(self._group, self._random)
        floor = self._cluster.acknowledged_offset(self._group)
        self._schedule.after(
            self._random.randrange(100, 2_000), lambda: self._arrive(target, floor)
        )
        self._schedule.after(
            interval_us // 2 + self._random.randrange(interval_us), lambda: self._beat(interval_us)
        )

    def _arrive(self, target: NodeId, floor: Offset) -> None:
        offset = Offset(self._random.randrange(self._seen + 1))
        seen = self._cluster.read(target, self._group, offset, floor)
        if seen is not None:
            self.read_count += 1
            self._seen = max(self._seen, seen)
