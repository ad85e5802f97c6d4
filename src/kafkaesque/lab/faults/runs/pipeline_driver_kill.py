"""kill -9 of the pipeline's Spark driver at named points around a commit and at random moments, while
records come in; then every sink is compared with the log."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from kafkaesque.lab.faults.fault_run import FaultRun, FaultRunContext, FaultRunOptions
from kafkaesque.lab.faults.workload import WorkloadSettings
from kafkaesque.lab.harness.cluster import BrokerSettings, SingleBroker, Target, TargetFailed

if TYPE_CHECKING:
    from kafkaesque.lab.faults.pipeline.kills import KillSettings

PATTERN: Final = "faults-.*"
RELAY_TOPIC: Final = "relay.out"
RANDOM_POINTS: Final = 20
RECORDS_PER_S_MAX: Final = 100
"""A driver takes longer to start than to read: more would only make the last one slow."""
ROWS_PER_BATCH: Final = 2000


class PipelineDriverKill(FaultRun):
    purpose = "kill -9 the pipeline's driver at each point around a commit and at random moments"
    promise = "no record is missing or doubled in any sink: Delta, dead letters, topic, Parquet"
    settings: ClassVar[BrokerSettings] = {"log.segment.bytes": 4 << 20}
    # Each named point and 20 random ones; `--rounds` takes the first so many.
    rounds = 9 + RANDOM_POINTS

    def __init__(self) -> None:
        self._data = Path()

    def workload(self, options: FaultRunOptions) -> WorkloadSettings:
        return WorkloadSettings(
            records_per_s=min(options.records_per_s, RECORDS_PER_S_MAX), seed=options.seed
        )

    def impossible(self) -> str | None:
        import os

        from kafkaesque.pipeline.errors import PipelineError
        from kafkaesque.pipeline.java import find_java
        from kafkaesque.pipeline.paths import cache_directory
        from kafkaesque.pipeline.session import require_packages

        try:
            require_packages()
            find_java(os.environ, cache_directory(os.environ))
        except PipelineError as error:
            return str(error)
        return None

    @contextmanager
    def open_target(self, directory: Path, settings: BrokerSettings) -> Iterator[Target]:
        self._data = directory / "pipeline"
        with closing(SingleBroker(directory, settings)) as target:
            yield target
        for log in self._data.glob("driver-*.log"):
            shutil.copyfile(log, directory / log.name)

    def begin(self, context: FaultRunContext) -> None:
        context.workload.create_topic(RELAY_TOPIC, 2)

    def inject(self, context: FaultRunContext) -> None:
        from kafkaesque.lab.faults.pipeline.kills import POINTS, RANDOM, kill_at
        from kafkaesque.pipeline.errors import PipelineError

        settings = self._settings(context)
        while context.another_round(0.1):
            number = context.rounds_done - 1
            point = POINTS[number] if number < len(POINTS) else RANDOM
            context.fault(f"kill -9 the driver: {point}", [])
            try:
                kill_at(settings, point, context.random)
            except PipelineError as error:
                raise TargetFailed(str(error)) from error
            context.count("random_kills" if point == RANDOM else "named_kills")

    def complaints(self, context: FaultRunContext) -> list[str]:
        from kafkaesque.lab.faults.pipeline.kills import finish
        from kafkaesque.pipeline.errors import PipelineError

        context.say("letting a driver read the rest")
        try:
            report = finish(self._settings(context), context.rounds_done)
        except PipelineError as error:
            return [f"the last driver failed: {error}"]
        context.notes |= {"rows_missing": report.missing, "rows_doubled": report.doubled}
        for sink in report.sinks:
            # A batch that was cut off is sent to the topic again under the same identity: these
            # records are there, and a reader drops them by their headers before it counts.
            context.say(
                f"sink {sink.sink}: {sink.rows} rows, {sink.missing} missing, {sink.doubled} doubled"
                + (f"; {sink.repeats} repeats dropped by their headers" if sink.repeats else "")
            )
            context.notes[f"rows_in_{sink.sink}"] = sink.rows
            context.count("topic_repeats_dropped", sink.repeats)
        return [
            f"sink {sink.sink}: {sink.missing} missing, {sink.doubled} doubled, "
            f"{sink.foreign} that are in no log, of {sink.rows}"
            for sink in report.sinks
            if not sink.is_whole
        ]

    def _settings(self, context: FaultRunContext) -> KillSettings:
        from kafkaesque.lab.faults.pipeline.kills import KillSettings

        return KillSettings(
            context.target.bootstrap_servers,
            PATTERN,
            self._data,
            relay_topic=RELAY_TOPIC,
            rows_max=ROWS_PER_BATCH,
        )
