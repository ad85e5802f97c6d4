"""Single bits of old batches turn over on disk while the broker runs."""

from __future__ import annotations

from collections.abc import Sequence

from kafkaesque.lab.faults.checks.history import Damage
from kafkaesque.lab.faults.segments import StoredBatch, segment_paths, stored_batches
from kafkaesque.lab.faults.stage import FaultRun, Stage


class Run(FaultRun):
    purpose = "flip one bit in batches on disk, with and without a restart after it"
    promise = "a damaged batch is never served and is reported; all others are served"

    def __init__(self) -> None:
        self._flipped: list[StoredBatch] = []

    def inject(self, stage: Stage) -> None:
        while stage.another_round(0.5, 1.5):
            node = stage.random.choice(stage.target.nodes)
            batch = choose_batch(stage, node, self._flipped)
            if batch is None:
                continue
            bit = stage.random.randrange(batch.size_bytes * 8)
            stage.fault(describe(batch, bit))
            flip(batch, bit)
            self._flipped.append(batch)
            stage.damaged.append(Damage(batch.key, batch.first_offset, batch.last_offset))
            stage.count("flips")
            if stage.random.random() < 0.3:
                stage.say(f"kill -9 node {node}")
                stage.target.kill(node)
                stage.target.start(node)

    def complaints(self, stage: Stage) -> list[str]:
        logs = "".join(stage.target.log_text(node) for node in stage.target.nodes)
        silent = [batch for batch in self._flipped if str(batch.path) not in logs]
        return [
            f"the broker's log does not name {batch.path}, damaged at position {batch.position}"
            for batch in silent
        ]


def choose_batch(stage: Stage, node: int, hit: Sequence[StoredBatch]) -> StoredBatch | None:
    """A batch of the node's that was not hit before."""
    places = {(batch.path, batch.position) for batch in hit}
    segments = [path for path in segment_paths(stage.target.data(node)) if path.stat().st_size]
    stage.random.shuffle(segments)
    for path in segments:
        batches = [b for b in stored_batches(path) if (b.path, b.position) not in places]
        if batches:
            return stage.random.choice(batches)
    return None


def describe(batch: StoredBatch, bit: int) -> str:
    return (
        f"flip bit {bit} of the batch at position {batch.position} of "
        f"{batch.path.parent.name}/{batch.path.name} (key {batch.key}, "
        f"offsets {batch.first_offset} to {batch.last_offset})"
    )


def flip(batch: StoredBatch, bit: int) -> None:
    with batch.path.open("r+b") as file:
        position = batch.position + bit // 8
        file.seek(position)
        (byte,) = file.read(1)
        file.seek(position)
        file.write(bytes([byte ^ (1 << bit % 8)]))
