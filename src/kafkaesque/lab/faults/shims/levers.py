"""Shims that read one number from a file while their process runs, and the file to write it to."""

from __future__ import annotations

import struct
from pathlib import Path

from kafkaesque.lab.faults.shims import build


class Lever:
    """One process's number: of shim `name`, told of its file by the variable `variable`."""

    def __init__(self, name: str, variable: str, directory: Path, node: int) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._file = directory / f"{name}-{node}"
        self._file.write_bytes(bytes(8))
        library = directory / f"{name}.so"
        if not library.exists():
            build(name, directory)
        self.environment = {"LD_PRELOAD": str(library), variable: str(self._file)}

    def set(self, value: int) -> None:
        with self._file.open("r+b") as file:
            file.write(struct.pack("=q", value))


def clock_lever(directory: Path, node: int) -> Lever:
    """How many nanoseconds the wall clock is off."""
    return Lever("clock", "KAFKAESQUE_CLOCK", directory, node)


def slow_lever(directory: Path, node: int) -> Lever:
    """How many microseconds longer a sync takes."""
    return Lever("slow", "KAFKAESQUE_SLOW", directory, node)
