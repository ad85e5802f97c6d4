"""Clients of the coordination service while brokers are killed, stopped and cut off."""

from __future__ import annotations

import time
from itertools import pairwise
from statistics import median
from typing import Final

from kafkaesque.lab.faults.coordination_run import CoordinationRun
from kafkaesque.lab.faults.stage import Stage
from kafkaesque.lab.faults.target import TargetUnwell
from kafkaesque.lab.faults.znode_clients import (
    LIVING,
    MORTAL_MS,
    REGISTERS,
    ROOT,
    Mortal,
    Story,
    Wanderer,
    now_us,
)
from kafkaesque.lab.faults.znode_history import Ending, judge_registers, judge_watches
from kafkaesque.lab.faults.znode_wire import Gone, Session, Wire

CLIENTS: Final = 4
_FAULT_S_MIN: Final = 2.0
_FAULT_S_MAX: Final = 4.0
_MORTAL_OUTLIVES_S: Final = 20.0
"""A change of leader gives a session its whole timeout anew, and a fault may hide it for a while."""
_END_S: Final = 30.0
_WRITTEN_WITHIN_S: Final = 20.0


class Run(CoordinationRun):
    purpose = "kill, stop and cut off brokers under clients of the coordination service"
    promise = "registers are linearizable, watches miss nothing, sessions and their nodes live on"
    rounds = 24

    def __init__(self) -> None:
        super().__init__()
        self._story = Story()
        self._workers: list[Wanderer | Mortal] = []
        self._faults_us: list[int] = []

    def begin(self, stage: Stage) -> None:
        super().begin(stage)
        self._make_registers()
        for number in range(CLIENTS):
            seed = stage.random.randrange(1 << 30)
            self._workers.append(Wanderer(self.addresses, self._story, seed, number))
        seed = stage.random.randrange(1 << 30)
        self._workers.append(Mortal(self.addresses, self._story, seed, _MORTAL_OUTLIVES_S))
        for worker in self._workers:
            worker.start()

    def _make_registers(self) -> None:
        deadline = time.monotonic() + _WRITTEN_WITHIN_S
        while True:
            try:
                wire = Wire(self.addresses[0], lambda _: None)
                wire.attach(Session(), 10_000, 0)
                for path in (ROOT, LIVING, *REGISTERS):
                    wire.create(path)
                wire.close()
                return
            except Gone:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def inject(self, stage: Stage) -> None:
        kinds = self.permitted(stage, ("kill", "pause"), cuts=("cut",))
        while stage.another_round(0.5, 1.0):
            kind = kinds.draw()
            node = stage.random.choice(self.cluster.nodes)
            seconds = stage.random.uniform(_FAULT_S_MIN, _FAULT_S_MAX)
            stage.fault(f"{kind} node {node} for {seconds:.1f} s")
            stage.count(f"{kind}s")
            self._faults_us.append(now_us())
            self._break(kind, node)
            time.sleep(seconds)
            self._wait_until_written()
            self.cluster.heal()
            self._wait_until_written()
        self._wait_until_a_session_ended()

    def _wait_until_a_session_ended(self) -> None:
        """After a round or two none has lived out its time yet, and the run would show nothing of
        it. If none does the complaint at the end says so."""
        deadline = time.monotonic() + MORTAL_MS / 1000 + _MORTAL_OUTLIVES_S
        while not self._story.mortal_ms and time.monotonic() < deadline:
            time.sleep(0.1)

    def _break(self, kind: str, node: int) -> None:
        if kind == "kill":
            self.cluster.kill(node)
        elif kind == "pause":
            self.cluster.pause(node)
        else:
            self.cut_off(node)

    def _wait_until_written(self) -> None:
        """Until every client has done something that began after this call."""
        since = now_us()
        deadline = time.monotonic() + _WRITTEN_WITHIN_S
        while True:
            tail = self._story.operations[-1000:]
            done = {o.client for o in tail if o.begun_us > since and o.ending is Ending.DONE}
            if len(done) == CLIENTS:
                return
            if time.monotonic() > deadline:
                missing = set(range(CLIENTS)) - done
                raise TargetUnwell(f"clients {sorted(missing)} are not served")
            time.sleep(0.05)

    # -- at the end -------------------------------------------------------------------------------

    def complaints(self, stage: Stage) -> list[str]:
        for worker in self._workers:
            worker.end(_END_S)
        story = self._story
        found = [
            *story.complaints,
            *judge_registers(story.operations),
            *judge_watches(story.connections, story.together),
        ]
        if not story.mortal_ms:
            found.append("no session ended in the whole run")
        self._note_figures(stage)
        stage.notes["coordination_violations"] = len(found)
        return [*found, *super().complaints(stage)]

    def _note_figures(self, stage: Stage) -> None:
        story = self._story
        done = [operation for operation in story.operations if operation.ending is Ending.DONE]
        events = sum(len(one.seen) for one in story.connections)
        stage.notes |= {
            "operations": len(done),
            "operations_unknown": sum(o.ending is Ending.UNKNOWN for o in story.operations),
            "connections": len(story.connections),
            "events_and_replies": events,
            "transactions": len(story.together),
            "ephemerals_ended": len(story.mortal_ms),
            "ephemeral_lived_ms_max": max(story.mortal_ms, default=0),
        }
        gaps = self._write_gaps_ms(sorted(o.ended_us for o in done if o.is_write))
        if gaps:
            stage.notes |= {"write_gap_ms_p50": int(median(gaps)), "write_gap_ms_max": max(gaps)}

    def _write_gaps_ms(self, written_us: list[int]) -> list[int]:
        """Per fault, the longest time in which no write of anybody was acknowledged."""
        gaps = []
        ends = [*self._faults_us[1:], now_us()]
        for begun, ended in zip(self._faults_us, ends, strict=True):
            times = [begun, *(at for at in written_us if begun <= at < ended)]
            gaps.append(max((later - at) // 1000 for at, later in pairwise(times)))
        return gaps
