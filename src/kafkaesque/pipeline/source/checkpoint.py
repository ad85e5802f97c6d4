"""The files that the pipeline keeps in, and reads from, the checkpoint of a streaming query.

Our own files are in `CHECKPOINT/kafkaesque/`: the initial offsets, the checkpoint's id, and a lock.
Spark does not keep the first offset of a Python source. After a crash in the first batch it asks
the source again, and "latest" has moved on. So "earliest" and "latest" are resolved to numbers and
written here once, before the query first starts. Both engines get these numbers.
"""

from __future__ import annotations

import fcntl
import json
import os
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from kafkaesque.pipeline.errors import CheckpointInUse, CheckpointLost
from kafkaesque.pipeline.rules.offsets import Offsets, Partition, from_spark, to_spark

DIRECTORY = "kafkaesque"
_IDENTITY = "identity.json"
_LOCK = "lock"


def pin_initial_offsets(
    checkpoint: Path, resolve: Callable[[], Offsets], source: str = "0"
) -> Offsets:
    """The offsets that this checkpoint began at. Calls `resolve` the first time only."""
    known = initial_offsets(checkpoint, source)
    if known is not None:
        return known
    path = _initial_path(checkpoint, source)
    if (checkpoint / "offsets" / "0").exists():
        raise CheckpointLost(
            f"{checkpoint} has batches but no initial offsets ({path.name} is missing)",
            "restore the file, or start with a new checkpoint",
        )
    offsets = resolve()
    write_durably(path, json.dumps(to_spark(offsets)))
    return offsets


def initial_offsets(checkpoint: Path, source: str = "0") -> Offsets | None:
    """The offsets that this checkpoint began at; None if no query has run on it."""
    path = _initial_path(checkpoint, source)
    return from_spark(json.loads(path.read_text())) if path.exists() else None


def _initial_path(checkpoint: Path, source: str) -> Path:
    return checkpoint / DIRECTORY / f"initial-offsets-{source}.json"


def checkpoint_id(checkpoint: Path) -> str:
    """A unique id of this checkpoint. Sinks use it to recognize the batches of a query."""
    path = checkpoint / DIRECTORY / _IDENTITY
    if not path.exists():
        write_durably(path, json.dumps({"id": uuid.uuid4().hex}))
    return str(json.loads(path.read_text())["id"])


def committed_offsets(checkpoint: Path) -> dict[Partition, int]:
    """The end offsets of the last committed batch of a query with one source; empty if none is."""
    lines = _last_committed(checkpoint)
    return {} if lines is None else from_spark(json.loads(lines[2]))


def committed_watermark_ms(checkpoint: Path) -> int | None:
    """The watermark up to which a query has emitted its windows; None if it never ran.

    In append mode a batch emits the windows that its own watermark has passed. That watermark is in
    the second line of the batch's entry in the offset log (OffsetSeqMetadata).
    """
    lines = _last_committed(checkpoint)
    if lines is None:
        return 0 if (checkpoint / "offsets").exists() else None
    return int(json.loads(lines[1]).get("batchWatermarkMs", 0))


def _last_committed(checkpoint: Path) -> list[str] | None:
    """The last committed batch's entry in the offset log, by line: version, metadata, offsets."""
    done = [int(path.name) for path in checkpoint.glob("commits/*") if path.name.isdigit()]
    if not done:
        return None
    return (checkpoint / "offsets" / str(max(done))).read_text().splitlines()


def write_durably(path: Path, text: str) -> None:
    """Writes the file atomically and syncs it to disk before returning."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


@dataclass(slots=True)
class CheckpointLock:
    """A file lock held while a query runs. Two drivers on one checkpoint would write the same batch."""

    file: IO[str]

    @classmethod
    def acquire(cls, checkpoint: Path) -> CheckpointLock:
        """Raises CheckpointInUse if another process holds the lock."""
        path = checkpoint / DIRECTORY / _LOCK
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            holder = file.read().strip() or "another process"
            file.close()
            raise CheckpointInUse(f"{holder} runs a query on {checkpoint}") from None
        file.truncate(0)
        file.write(f"pid {os.getpid()}")
        file.flush()
        return cls(file)

    def release(self) -> None:
        self.file.close()
