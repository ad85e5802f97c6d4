"""The environment of a query: session, data directory, Kafka cluster and settings. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kafkaesque.model.errors import InvalidConfig
from kafkaesque.model.setting import Setting, SettingType, attributes_of, setting, settings_of
from kafkaesque.pipeline.errors import InvalidOption
from kafkaesque.pipeline.jobs.trends import TrendSettings
from kafkaesque.pipeline.paths import PipelineDirectory
from kafkaesque.pipeline.source.reading import Engine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_INT, _STRING = SettingType.INT, SettingType.STRING


@dataclass(frozen=True, slots=True)
class PipelineSettings:
    """The settings that an operator can change with `--set NAME=VALUE`."""

    trends_window_s: int = setting(
        "trends.window.s", _INT, 600, "Length of the windows in which hashtags are counted.",
        at_least=2, ours=True,
    )  # fmt: skip
    trends_slide_s: int = setting(
        "trends.slide.s",
        _INT,
        60,
        "Seconds between the starts of two windows.",
        at_least=1,
        ours=True,
    )
    trends_late_s: int = setting(
        "trends.late.s", _INT, 120, "Posts later than this are dropped and counted as late.",
        at_least=0, ours=True,
    )  # fmt: skip
    trends_top: int = setting(
        "trends.top",
        _INT,
        50,
        "Number of hashtags per window that the table keeps.",
        at_least=1,
        ours=True,
    )
    trends_topic: str = setting(
        "trends.topic", _STRING, "trends", "Topic that live trends are written to.", ours=True
    )
    late_s: int = setting(
        "chat.late.s", _INT, 120, "Chat events later than this are dropped and counted as late.",
        at_least=0, ours=True,
    )  # fmt: skip
    session_gap_s: int = setting(
        "chat.session.gap.s", _INT, 1800, "A silence of this length ends a session.",
        at_least=1, ours=True,
    )  # fmt: skip
    archive_pattern: str = setting(
        "archive.topics", _STRING, r"(?!__).*",
        "Pattern of the topics to archive; by default all except Kafka's own.", ours=True,
    )  # fmt: skip
    archive_keep_days: int = setting(
        "archive.keep.days", _INT, 0, "Days after which `upkeep` deletes rows of the archive; 0 keeps all.",
        at_least=0, ours=True,
    )  # fmt: skip
    table_keep_hours: int = setting(
        "table.keep.hours", _INT, 168, "Hours for which `upkeep` keeps past versions of tables readable.",
        at_least=0, ours=True,
    )  # fmt: skip
    upkeep_every_batches: int = setting(
        "upkeep.every.batches", _INT, 500,
        "Batches after which a query maintains its tables, as `upkeep` does; 0: never.",
        at_least=0, ours=True,
    )  # fmt: skip
    quality_behind_s: int = setting(
        "quality.behind.s", _INT, 3600,
        "`quality` raises an alert if the archive lacks a record older than this.",
        at_least=0, ours=True,
    )  # fmt: skip
    alerts_topic: str = setting(
        "alerts.topic", _STRING, "pipeline.alerts", "Topic that reports write their alerts to.",
        ours=True,
    )  # fmt: skip

    @property
    def trends(self) -> TrendSettings:
        """Raises InvalidOption unless the window is a multiple of its slide."""
        try:
            return TrendSettings(
                self.trends_window_s, self.trends_slide_s, self.trends_late_s, self.trends_top
            )
        except ValueError as error:
            raise InvalidOption(f"trends: {error}") from error


SETTINGS: Mapping[str, Setting] = settings_of(PipelineSettings)
_ATTRIBUTES = attributes_of(PipelineSettings)


def read_settings(values: Mapping[str, str]) -> PipelineSettings:
    """Raises InvalidOption that names an unknown or invalid setting."""
    given = {}
    for name, text in values.items():
        if name not in SETTINGS:
            raise InvalidOption(f"there is no setting '{name}'", f"settings: {', '.join(SETTINGS)}")
        try:
            given[_ATTRIBUTES[name]] = SETTINGS[name].parse(text)
        except InvalidConfig as error:
            raise InvalidOption(str(error)) from error
    settings = PipelineSettings(**given)  # type: ignore[arg-type]
    _ = settings.trends  # checks the window against its slide
    return settings


@dataclass(frozen=True, slots=True)
class PipelineContext:
    """The environment shared by the queries and reports of one process."""

    spark: SparkSession
    data: PipelineDirectory
    kafka: Mapping[str, str]
    """Client properties by Kafka's names, including `bootstrap.servers`."""
    engine: Engine = "auto"
    settings: PipelineSettings = field(default_factory=PipelineSettings)
    tables: Path | None = None
    """Directory of the tables if not that of `data`: the side tables of a backfill."""

    def table(self, name: str) -> Path:
        return self.data.table(name) if self.tables is None else self.tables / name

    def source_options(self, **options: str) -> dict[str, str]:
        """Options of the Kafka source. Reads `read_committed` unless `kafka` says otherwise."""
        given = {f"kafka.{name}": value for name, value in self.kafka.items()}
        return {"kafka.isolation.level": "read_committed", **given, **options}
