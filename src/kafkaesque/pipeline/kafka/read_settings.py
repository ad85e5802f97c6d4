"""The settings of a read. Free of pyarrow: `pipeline status` needs them on machines without Spark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kafkaesque.pipeline.kafka.cluster import ClusterSettings

FETCH_SIZE_BYTES: Final = 4 << 20


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
