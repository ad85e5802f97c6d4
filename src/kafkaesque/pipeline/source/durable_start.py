"""Where a query began, kept beside its checkpoint; who it is; and that only one runs on it.

Spark does not keep the first offset of a Python source: after a crash in the first batch it asks
again, and "latest" has moved on. So the words are made numbers and written down before the query
starts, once for ever. Both engines are given these numbers.
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
from kafkaesque.pipeline.source.offsets import Offsets, from_spark, to_spark

DIRECTORY = "kafkaesque"
_IDENTITY = "identity.json"
_LOCK = "lock"


def durable_offsets(checkpoint: Path, resolve: Callable[[], Offsets], source: str = "0") -> Offsets:
    """The offsets that this checkpoint began at; `resolve` is asked the first time only."""
    known = initial_offsets(checkpoint, source)
    if known is not None:
        return known
    path = _initial_path(checkpoint, source)
    if (checkpoint / "offsets" / "0").exists():
        raise CheckpointLost(
            f"{checkpoint} holds batches but not where they began ({path.name} is missing)",
            "restore the file, or start with a new checkpoint",
        )
    offsets = resolve()
    write_durably(path, json.dumps(to_spark(offsets)))
    return offsets


def initial_offsets(checkpoint: Path, source: str = "0") -> Offsets | None:
    """Where this checkpoint began; None where no query ran on it yet."""
    path = _initial_path(checkpoint, source)
    return from_spark(json.loads(path.read_text())) if path.exists() else None


def _initial_path(checkpoint: Path, source: str) -> Path:
    return checkpoint / DIRECTORY / f"initial-offsets-{source}.json"


def identity(checkpoint: Path) -> str:
    """A name for this checkpoint that no other has: what a sink knows a query's batches by."""
    path = checkpoint / DIRECTORY / _IDENTITY
    if not path.exists():
        write_durably(path, json.dumps({"id": uuid.uuid4().hex}))
    return str(json.loads(path.read_text())["id"])


def write_durably(path: Path, text: str) -> None:
    """Whole or not at all, and on the disk when this returns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    with aside.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


@dataclass(slots=True)
class CheckpointLock:
    """Held while a query runs: two drivers on one checkpoint would each write its next batch."""

    file: IO[str]

    @classmethod
    def take(cls, checkpoint: Path) -> CheckpointLock:
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
