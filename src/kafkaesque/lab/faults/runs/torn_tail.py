"""kill -9, then the end of every log is torn: cut, garbled, or followed by half a batch."""

from __future__ import annotations

import random
from pathlib import Path

from kafkaesque.lab.faults.segments import segment_paths, synced_position
from kafkaesque.lab.faults.stage import FaultRun, Stage

_HALF_BATCH_BYTES_MAX = 400


class Run(FaultRun):
    purpose = "kill -9, then cut, garble or extend every log behind its sync point"
    promise = "the torn tail is cut, and nothing acknowledged was in it"

    def inject(self, stage: Stage) -> None:
        while stage.another_round(0.3, 2.0):
            node = stage.random.choice(stage.target.nodes)
            stage.fault(f"kill -9 node {node} and tear the tails of its logs")
            stage.target.kill(node)
            for segment in segment_paths(stage.target.data(node)):
                torn = tear(segment, synced_position(segment), stage.random)
                stage.count("torn_bytes", torn)
                stage.count("torn_segments", torn > 0)
            stage.target.start(node)


def tear(segment: Path, synced: int, rng: random.Random) -> int:
    """Do something to what lies behind `synced`, in the last segment only; the bytes concerned."""
    size = segment.stat().st_size
    if segment != max(segment.parent.glob("*.log")):
        return 0
    with segment.open("r+b") as file:
        match rng.choice(["cut", "garble", "half a batch", "zeros"]):
            case "cut":
                file.truncate(rng.randint(synced, max(synced, size)))
            case "garble":
                file.seek(synced)
                file.write(rng.randbytes(max(0, size - synced)))
            case "half a batch":
                head = file.read(rng.randint(1, _HALF_BATCH_BYTES_MAX))
                file.seek(0, 2)
                file.write(head)
            case _:
                file.seek(0, 2)
                file.write(bytes(rng.randint(1, _HALF_BATCH_BYTES_MAX)))
        return max(abs(file.seek(0, 2) - size), size - synced)
