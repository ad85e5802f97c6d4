"""What a query is run with: where, against which Kafka, and with which knobs. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kafkaesque.pipeline.jobs.trends import TrendSettings
from kafkaesque.pipeline.places import Places
from kafkaesque.pipeline.source.reading import Engine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Knobs:
    """What an operator may tune."""

    trends: TrendSettings = field(default_factory=TrendSettings)
    late_s: int = 120
    session_gap_s: int = 1800
    archive_pattern: str = r"(?!__).*"
    """Topics that the archive takes in: all but Kafka's own."""
    archive_keep_days: int | None = None
    trends_topic: str = "trends"
    alerts_topic: str = "pipeline.alerts"


@dataclass(frozen=True, slots=True)
class Context:
    """One run of the pipeline."""

    spark: SparkSession
    places: Places
    kafka: Mapping[str, str]
    """Client properties by Kafka's names, `bootstrap.servers` among them."""
    engine: Engine = "auto"
    knobs: Knobs = field(default_factory=Knobs)
    tables: Path | None = None
    """Where tables are written instead of `places`: a side directory of a backfill."""

    def table(self, name: str) -> Path:
        return self.places.table(name) if self.tables is None else self.tables / name

    def source_options(self, **options: str) -> dict[str, str]:
        return {**{f"kafka.{name}": value for name, value in self.kafka.items()}, **options}
