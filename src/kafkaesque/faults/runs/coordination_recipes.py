"""kazoo's Election and Lock while who leads, and the broker that serves it, are killed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from kafkaesque.faults.cluster_run import ClusterRun
from kafkaesque.faults.cluster_target import ClusterTarget
from kafkaesque.faults.contest import Contest, overlaps
from kafkaesque.faults.figures import percentile
from kafkaesque.faults.stage import Stage
from kafkaesque.faults.target import Target
from kafkaesque.testing.cluster_layout import HOST, ReservedPorts

VARIABLE: Final = "KAFKAESQUE_COORDINATION_LISTENER"
PLACES: Final = ("a", "b", "c")
SESSION_TIMEOUT_S: Final = 4.0
_LED_WITHIN_S: Final = 60.0


class Run(ClusterRun):
    purpose = "kill -9 who leads an election, and the broker that serves it, again and again"
    promise = "a lock is never held twice, nobody leads beside another, and somebody takes over"
    rounds = 20

    def __init__(self) -> None:
        super().__init__()
        self._ports: tuple[int, ...] = ()
        self._contest = Contest("", SESSION_TIMEOUT_S)
        self._took_ms: list[float] = []

    @contextmanager
    def open_target(self, directory: Path, settings: Mapping[str, object]) -> Iterator[Target]:
        with closing(ReservedPorts(self.brokers)) as reserved:
            self._ports = reserved.numbers
            servers = ",".join(f"{HOST}:{port}" for port in self._ports)
            with (
                closing(Contest(servers, SESSION_TIMEOUT_S)) as self._contest,
                super().open_target(directory, settings) as target,
            ):
                yield target

    def new_target(self, directory: Path, settings: Mapping[str, object]) -> ClusterTarget:
        return ClusterTarget(
            directory,
            settings,
            count=self.brokers,
            environment=lambda node: {VARIABLE: f"{HOST}:{self._ports[node]}"},
        )

    def begin(self, stage: Stage) -> None:
        super().begin(stage)
        for place in PLACES:
            self._contest.start(place)
        self._contest.leader(_LED_WITHIN_S)

    def inject(self, stage: Stage) -> None:
        while stage.another_round(0.5, 1.5):
            place, _ = self._contest.leader(_LED_WITHIN_S)
            port = self._contest.port_of(place)
            node = self._ports.index(port) if port in self._ports else 0
            stage.fault(f"kill -9 {place}, which leads, and node {node}, which serves it")
            since_ns = self._kill(place, node)
            _, leads_ns = self._contest.leader(_LED_WITHIN_S)
            self._took_ms.append((leads_ns - since_ns) / 1e6)
            self._contest.start(place)
            self.cluster.heal()

    def _kill(self, place: str, node: int) -> int:
        """When the leader was, by the monotonic clock."""
        self._contest.kill(place)
        since_ns = max(turn.ended_ns for turn in self._contest.turns("lead"))
        self.cluster.kill(node)
        return since_ns

    def complaints(self, stage: Stage) -> list[str]:
        self._contest.close()
        found = super().complaints(stage)
        for what in ("lead", "lock"):
            turns = self._contest.turns(what)
            found += [f"{what}: {sentence}" for sentence in overlaps(turns)]
            stage.notes[f"{what}_turns"] = len(turns)
            if not turns:
                found.append(f"{what}: nobody ever had it")
        if self._took_ms:
            stage.notes["hand_over_ms_p50"] = round(percentile(self._took_ms, 0.5))
            stage.notes["hand_over_ms_p99"] = round(percentile(self._took_ms, 0.99))
        return found
