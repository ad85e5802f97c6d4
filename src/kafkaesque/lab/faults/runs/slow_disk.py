"""Syncs take long, on one follower and then on a leader."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from kafkaesque.lab.faults.checks.figures import percentile
from kafkaesque.lab.faults.checks.history import Function, Outcome
from kafkaesque.lab.faults.runs.shimmed_run import ShimmedRun
from kafkaesque.lab.faults.shims.levers import Lever, slow_lever
from kafkaesque.lab.faults.stage import Stage

_DELAY_US_FOLLOWER: Final = 500_000
_DELAY_US_LEADER: Final = 3_000_000
"""More than a leader may wait for its own disk before it gives up."""
_SLOW_S: Final = 5.0
_QUIET_S: Final = 0.5
"""Load without a fault before each round, with which the load beside a slow follower is compared."""
_ADDED_MS_MAX: Final = 250
"""Half of the delay. Whoever waits for the follower waits for all of it at least."""
_ADDED: Final = "slow_follower_added_ms_p50"


class Run(ShimmedRun[Lever]):
    purpose = "slow down every sync of a follower by 0.5 s, then every sync of a leader by 3 s"
    promise = "a slow follower delays nobody, a slow leader gives up; nothing is lost or repeated"

    def new_device(self, directory: Path, node: int) -> Lever:
        return slow_lever(directory / "levers", node)

    def inject(self, stage: Stage) -> None:
        while stage.another_round(_QUIET_S, 1.5):
            self._slow_follower(stage)
            self._slow_leader(stage)

    def _slow_follower(self, stage: Stage) -> None:
        # The one that leads least: what it leads itself is delayed or moves, and is not meant here.
        led = {node: self.keys_led_by(stage, [node]) for node in self.cluster.nodes}
        node = min(led, key=lambda one: len(led[one]))
        keys = [key for key in stage.workload.partitions.keys if key not in led[node]]
        stage.fault(f"syncs of node {node} take 0.5 s longer, a follower of keys {keys}", keys)
        from_us = stage.workload.recorder.now_us()
        self.devices[node].set(_DELAY_US_FOLLOWER)
        time.sleep(_SLOW_S)
        self.devices[node].set(0)
        quiet_from_us = from_us - int(_QUIET_S * 1e6)
        before = self._waits_ms(stage, set(keys), quiet_from_us, from_us)
        waits = self._waits_ms(stage, set(keys), from_us, stage.workload.recorder.now_us())
        stage.highest("slow_follower_produce_ms_p50", int(percentile(waits, 0.5)))
        stage.highest("slow_follower_produce_ms_p99", int(percentile(waits, 0.99)))
        stage.highest(_ADDED, added_ms(before, waits))
        stage.count("slow_followers")
        self.cluster.wait_whole()

    def _slow_leader(self, stage: Stage) -> None:
        node = self.leader_of_some_key(stage)
        keys = self.keys_led_by(stage, [node])
        stage.fault(f"syncs of node {node} take 3 s longer, which leads keys {keys}", keys)
        began_at = time.monotonic()
        self.devices[node].set(_DELAY_US_LEADER)
        partitions = stage.workload.partitions

        def has_given_up() -> bool | None:
            seen = self.cluster.partitions()
            led = [seen[partitions.place(key)].leader for key in keys]
            return all(one not in (None, node) for one in led) or None

        self.cluster.wait_for(f"other leaders than the slow node {node}", has_given_up)
        stage.highest("slow_leader_gone_ms_max", int((time.monotonic() - began_at) * 1000))
        self.wait_until_served(stage, keys)
        self.devices[node].set(0)
        stage.count("slow_leaders")
        self.cluster.wait_whole()

    def complaints(self, stage: Stage) -> list[str]:
        found = super().complaints(stage)
        added = int(stage.notes.get(_ADDED, 0))
        if added > _ADDED_MS_MAX:
            found.append(f"a slow follower delayed the others: {added} ms more in the median")
        return found

    def _waits_ms(self, stage: Stage, keys: set[int], from_us: int, to_us: int) -> list[float]:
        return [
            (one.completed_us - one.invoked_us) / 1000
            for one in stage.workload.operations()
            if one.f is Function.SEND
            and one.outcome is Outcome.OK
            and from_us <= one.invoked_us < to_us
            and one.sends[0].key in keys
        ]


def added_ms(before: Sequence[float], waits: Sequence[float]) -> int:
    """By how much the median grew; as long as all was slow if nothing was acknowledged meanwhile."""
    if not waits:
        return int(_SLOW_S * 1000)
    return max(0, int(percentile(waits, 0.5) - percentile(before, 0.5)))
