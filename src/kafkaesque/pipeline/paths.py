"""Paths of the pipeline's files on this machine. Nothing is created or read here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


def cache_directory(environment: Mapping[str, str]) -> Path:
    """The directory for what can be fetched or generated again: jars, the Java shim."""
    base = environment.get("XDG_CACHE_HOME") or str(
        Path(environment.get("HOME", "/tmp"), ".cache")  # noqa: S108 - only where there is no home
    )
    return Path(base, "kafkaesque")


@dataclass(frozen=True, slots=True)
class PipelineDirectory:
    """The layout of one pipeline's data directory."""

    root: Path

    def query(self, name: str) -> Path:
        """All files of one query except its tables."""
        return self.root / "queries" / name

    def checkpoint(self, name: str) -> Path:
        return self.query(name) / "checkpoint"

    def status(self, name: str) -> Path:
        return self.query(name) / "status.json"

    def feed(self, name: str) -> Path:
        """One JSON object per line and batch; consoles tail this file."""
        return self.query(name) / "progress.jsonl"

    def stop_request(self, name: str) -> Path:
        return self.query(name) / "stop"

    def table(self, name: str) -> Path:
        return self.root / "tables" / name

    def side_table(self, name: str, run: str) -> Path:
        return self.root / "side" / f"{name}-{run}"

    @property
    def scratch(self) -> Path:
        """Spark's shuffle and spill files, removed when a session starts."""
        return self.root / "scratch"
