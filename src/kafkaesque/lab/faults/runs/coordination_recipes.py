"""kazoo's Election and Lock while who leads is killed, its broker cut off, and the quorum taken away."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from kafkaesque.lab.faults.checks.figures import percentile
from kafkaesque.lab.faults.contest import Contest, Span, intrusions, overlaps
from kafkaesque.lab.faults.coordination_run import CoordinationRun
from kafkaesque.lab.faults.stage import Stage
from kafkaesque.lab.faults.target import Target

PLACES: Final = ("a", "b", "c")
SESSION_TIMEOUT_S: Final = 4.0
_LED_WITHIN_S: Final = 60.0
_LET_GO_WITHIN_S: Final = 30.0
_LONGER_THAN_A_SESSION_S: Final = SESSION_TIMEOUT_S + 1.0
"""Whoever could elect another one behind a master's back would do so within this time."""


class Run(CoordinationRun):
    purpose = "kill -9 who leads an election and its broker, cut that off, take the quorum away"
    promise = (
        "a lock is never held twice, nobody leads beside another, nobody at all without a quorum, "
        "and somebody takes over"
    )
    rounds = 30

    def __init__(self) -> None:
        super().__init__()
        self._contest = Contest("", SESSION_TIMEOUT_S)
        self._took_ms: list[float] = []
        self._without_quorum: list[Span] = []

    @contextmanager
    def open_target(self, directory: Path, settings: Mapping[str, object]) -> Iterator[Target]:
        with (
            super().open_target(directory, settings) as target,
            closing(Contest(",".join(self.addresses), SESSION_TIMEOUT_S)) as self._contest,
        ):
            yield target

    def begin(self, stage: Stage) -> None:
        super().begin(stage)
        for place in PLACES:
            self._contest.start(place)
        self._contest.leader(_LED_WITHIN_S)

    def inject(self, stage: Stage) -> None:
        kinds = self.permitted(stage, ("kill", "blackout"), cuts=("cut",))
        while stage.another_round(0.5, 1.5):
            place, _ = self._contest.leader(_LED_WITHIN_S)
            address = self._contest.server_of(place)
            node = self.addresses.index(address) if address in self.addresses else 0
            kind = kinds.draw()
            stage.count(f"{kind}s")
            if kind == "kill":
                self._kill(stage, place, node)
            elif kind == "cut":
                self._cut(stage, place, node)
            else:
                self._black_out(stage, place, node)

    def _kill(self, stage: Stage, place: str, node: int) -> None:
        stage.fault(f"kill -9 {place}, which leads, and node {node}, which serves it")
        self._contest.kill(place)
        since_ns = max(turn.ended_ns for turn in self._contest.turns("lead"))
        self.cluster.kill(node)
        _, leads_ns = self._contest.leader(_LED_WITHIN_S)
        self._took_ms.append((leads_ns - since_ns) / 1e6)
        self._contest.start(place)
        self.cluster.heal()

    def _cut(self, stage: Stage, place: str, node: int) -> None:
        """The others are a majority, and one of them leads before the end of the cut or after it."""
        stage.fault(f"cut off node {node}, which serves {place}, which leads")
        self.cut_off(node)
        time.sleep(_LONGER_THAN_A_SESSION_S)
        self._contest.leader(_LED_WITHIN_S)
        self.cluster.heal()

    def _black_out(self, stage: Stage, place: str, node: int) -> None:
        """No two brokers hear one another: nobody may lead, and nobody may be told that it does."""
        if self.can_cut:
            stage.fault(f"cut every link between brokers; {place} leads, node {node} serves it")
            for one in self.cluster.nodes:
                self.cut_off(one)
        else:
            awake = stage.random.choice(self.cluster.nodes)
            stage.fault(f"stop all but node {awake}; {place} leads, node {node} serves it")
            for one in self.cluster.nodes:
                if one != awake:
                    self.cluster.pause(one)
        begun_ns = time.monotonic_ns()
        self._contest.wait_until_nobody_is_served(_LET_GO_WITHIN_S)
        let_go_ns = time.monotonic_ns()
        stage.highest("let_go_ms_max", (let_go_ns - begun_ns) // 1_000_000)
        time.sleep(_LONGER_THAN_A_SESSION_S)
        self._without_quorum.append(Span(let_go_ns, time.monotonic_ns()))
        self.cluster.heal()
        self._contest.leader(_LED_WITHIN_S)

    def complaints(self, stage: Stage) -> list[str]:
        self._contest.close()
        found = super().complaints(stage)
        for what in ("lead", "lock"):
            turns = self._contest.turns(what)
            wrong = [*overlaps(turns), *intrusions(turns, self._without_quorum)]
            found += [f"{what}: {sentence}" for sentence in wrong]
            stage.notes[f"{what}_turns"] = len(turns)
            if not turns:
                found.append(f"{what}: nobody ever had it")
        if self._took_ms:
            stage.notes["hand_over_ms_p50"] = round(percentile(self._took_ms, 0.5))
            stage.notes["hand_over_ms_p99"] = round(percentile(self._took_ms, 0.99))
        return found
