"""The input of a task: a range of offsets of one partition, and the settings of the read.

Free of pyarrow: `pipeline status` needs these classes on machines without Spark.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kafkaesque.pipeline.kafka.cluster import ClusterSettings

FETCH_SIZE_BYTES: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Records [start, end) of one partition."""

    topic: str
    partition: int
    start: int
    end: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} [{self.start}, {self.end})"


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """The settings of a read."""

    cluster: ClusterSettings
    with_headers: bool = False
    committed_only: bool = False
    fail_on_data_loss: bool = True
    fetch_size_bytes: int = FETCH_SIZE_BYTES
    compiled: bool | None = None
    """Require the compiled (True) or the plain decoder (False); None takes the fastest."""
