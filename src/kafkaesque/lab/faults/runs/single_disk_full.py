"""The disk is full for a while, then there is room again; sometimes the broker dies in between."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

from kafkaesque.lab.faults import small_disk
from kafkaesque.lab.faults.stage import FaultRun, Stage
from kafkaesque.lab.faults.target import SingleBroker, Target

_FULL_S_MIN = 0.5
_FULL_S_MAX = 3.0


class Run(FaultRun):
    purpose = "leave no byte free on the broker's disk for up to 3 s, then make room"
    promise = "records are refused, not lost; the broker goes on by itself when there is room"

    def impossible(self) -> str | None:
        return small_disk.impossible()

    @contextmanager
    def open_target(self, directory: Path, settings: Mapping[str, object]) -> Iterator[Target]:
        with (
            small_disk.small_disk(directory / "data"),
            closing(SingleBroker(directory, settings)) as target,
        ):
            yield target

    def inject(self, stage: Stage) -> None:
        while stage.another_round(0.5, 2.0):
            node = stage.random.choice(stage.target.nodes)
            stage.fault(f"the disk of node {node} is full")
            small_disk.fill(stage.target.data(node))
            stage.count("times_full")
            time.sleep(stage.random.uniform(_FULL_S_MIN, _FULL_S_MAX))
            make_room(stage, node)

    def complaints(self, stage: Stage) -> list[str]:
        refused = any("No space left" in stage.target.log_text(n) for n in stage.target.nodes)
        return [] if refused else ["the broker's log never tells of a full disk"]


def make_room(stage: Stage, node: int) -> None:
    """On the node's disk; sometimes the node dies before."""
    dies = stage.random.random() < 0.3
    if dies:
        stage.say(f"kill -9 node {node} on a full disk")
        stage.target.kill(node)
        stage.count("kills_when_full")
    small_disk.make_room(stage.target.data(node))
    stage.say(f"the disk of node {node} has room again")
    if dies:
        stage.target.start(node)
