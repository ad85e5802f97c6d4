"""What a query is run with: where, against which Kafka, and with which knobs. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kafkaesque.model.errors import InvalidConfig
from kafkaesque.model.setting import Setting, SettingType, attributes_of, setting, settings_of
from kafkaesque.pipeline.errors import InvalidOption
from kafkaesque.pipeline.jobs.trends import TrendSettings
from kafkaesque.pipeline.places import Places
from kafkaesque.pipeline.source.reading import Engine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_INT, _STRING = SettingType.INT, SettingType.STRING


@dataclass(frozen=True, slots=True)
class Knobs:
    """What an operator may tune: `--set NAME=VALUE`."""

    trends_window_s: int = setting(
        "trends.window.s", _INT, 600, "Length of the windows that hashtags are counted in.",
        at_least=2, ours=True,
    )  # fmt: skip
    trends_slide_s: int = setting(
        "trends.slide.s", _INT, 60, "A window begins every so many seconds.", at_least=1, ours=True
    )
    trends_late_s: int = setting(
        "trends.late.s", _INT, 120, "Posts later than this are counted as late and left out.",
        at_least=0, ours=True,
    )  # fmt: skip
    trends_top: int = setting(
        "trends.top", _INT, 50, "Hashtags of a window that the table keeps.", at_least=1, ours=True
    )
    trends_topic: str = setting(
        "trends.topic", _STRING, "trends", "Where live trends are written.", ours=True
    )
    late_s: int = setting(
        "chat.late.s", _INT, 120, "Chat events later than this are counted as late.",
        at_least=0, ours=True,
    )  # fmt: skip
    session_gap_s: int = setting(
        "chat.session.gap.s", _INT, 1800, "A silence this long ends a session.",
        at_least=1, ours=True,
    )  # fmt: skip
    archive_pattern: str = setting(
        "archive.topics", _STRING, r"(?!__).*",
        "Pattern of the topics that the archive takes in: all but Kafka's own.", ours=True,
    )  # fmt: skip
    archive_keep_days: int = setting(
        "archive.keep.days", _INT, 0, "`upkeep` deletes older rows of the archive; 0 keeps all.",
        at_least=0, ours=True,
    )  # fmt: skip
    table_keep_hours: int = setting(
        "table.keep.hours", _INT, 168, "How long `upkeep` leaves past versions of tables readable.",
        at_least=0, ours=True,
    )  # fmt: skip
    upkeep_every_batches: int = setting(
        "upkeep.every.batches", _INT, 500,
        "A query keeps its tables in shape after so many batches, as `upkeep` does; 0: never.",
        at_least=0, ours=True,
    )  # fmt: skip
    quality_behind_s: int = setting(
        "quality.behind.s", _INT, 3600,
        "`quality` alerts where the archive lacks a record that is older than this.",
        at_least=0, ours=True,
    )  # fmt: skip
    alerts_topic: str = setting(
        "alerts.topic", _STRING, "pipeline.alerts", "Where reports write what must be looked at.",
        ours=True,
    )  # fmt: skip

    @property
    def trends(self) -> TrendSettings:
        """InvalidOption where the window is no multiple of its slide."""
        try:
            return TrendSettings(
                self.trends_window_s, self.trends_slide_s, self.trends_late_s, self.trends_top
            )
        except ValueError as error:
            raise InvalidOption(f"trends: {error}") from error


KNOBS: Mapping[str, Setting] = settings_of(Knobs)
_ATTRIBUTES = attributes_of(Knobs)


def read_knobs(values: Mapping[str, str]) -> Knobs:
    """InvalidOption names the setting that is unknown or wrong."""
    given = {}
    for name, text in values.items():
        if name not in KNOBS:
            raise InvalidOption(f"there is no setting '{name}'", f"there are {', '.join(KNOBS)}")
        try:
            given[_ATTRIBUTES[name]] = KNOBS[name].parse(text)
        except InvalidConfig as error:
            raise InvalidOption(str(error)) from error
    knobs = Knobs(**given)  # type: ignore[arg-type]
    _ = knobs.trends
    return knobs


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
        """Of a read by a job: what was aborted is not seen, unless `kafka` says otherwise."""
        given = {f"kafka.{name}": value for name, value in self.kafka.items()}
        return {"kafka.isolation.level": "read_committed", **given, **options}
