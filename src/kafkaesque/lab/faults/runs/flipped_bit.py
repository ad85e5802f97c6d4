"""Single bits turn over on one replica's disk: the others have the batch, so nothing may be missing."""

from __future__ import annotations

import time
from typing import Final

from kafkaesque.lab.faults.cluster_run import ClusterRun
from kafkaesque.lab.faults.runs.single_flipped_bit import choose_batch, describe, flip
from kafkaesque.lab.faults.segments import StoredBatch
from kafkaesque.lab.faults.stage import Stage

_REPAIRED_WITHIN_S: Final = 60.0


class Run(ClusterRun):
    purpose = "flip one bit in a batch of one replica, with and without a restart after it"
    promise = "it is never served and is repaired from a peer; nothing is lost or repeated"

    def __init__(self) -> None:
        super().__init__()
        self._flipped: list[tuple[StoredBatch, bytes]] = []
        """With the bytes as they were."""

    def inject(self, stage: Stage) -> None:
        while stage.another_round(0.5, 1.5):
            node = stage.random.choice(self.cluster.nodes)
            batch = choose_batch(stage, node, [one for one, _ in self._flipped])
            if batch is None:
                continue
            bit = stage.random.randrange(batch.size_bytes * 8)
            stage.fault(f"node {node}: {describe(batch, bit)}", [batch.key])
            self._flipped.append((batch, _read(batch)))
            flip(batch, bit)
            stage.count("flips")
            if stage.random.random() < 0.3:
                stage.say(f"kill -9 node {node}")
                self.cluster.kill(node)
                self.cluster.start(node)
                self.cluster.wait_whole()
        self._wait_for_repairs(stage)

    def _wait_for_repairs(self, stage: Stage) -> None:
        """The scrub comes by where nobody reads."""
        stage.say("waiting for repairs")
        began_at = time.monotonic()
        self.cluster.wait_for(
            "every damaged batch as it was",
            lambda: all(_read(batch) == before for batch, before in self._flipped) or None,
            _REPAIRED_WITHIN_S,
        )
        stage.notes["last_repair_ms"] = int((time.monotonic() - began_at) * 1000)

    def complaints(self, stage: Stage) -> list[str]:
        found = super().complaints(stage)
        logs = "".join(self.cluster.log_text(node) for node in self.cluster.nodes)
        told = logs.count("is repaired from")
        stage.notes["repairs_told"] = told
        if told < len(self._flipped):
            found.append(f"the logs tell of {told} repair(s) of {len(self._flipped)}")
        return found


def _read(batch: StoredBatch) -> bytes:
    with batch.path.open("rb") as file:
        file.seek(batch.position)
        return file.read(batch.size_bytes)
