"""The pipeline's Python engine beside Spark's own Kafka connector and a bare client, and the latency of a
record to a table or a trend.

All measurements read the same topic of our own broker in one Spark session, in turns. Warm-up rounds are
not counted, because the JVM's compilers need about ten queries. The broker, Spark and its Python workers
share the machine. Ratios of time and CPU are taken round by round.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkaesque.lab.bench.figures import Goal
from kafkaesque.lab.bench.raw_load import LoadFailed
from kafkaesque.lab.bench.report import BenchmarkReport
from kafkaesque.lab.bench.rounds import BenchmarkOptions, new_report

if TYPE_CHECKING:
    from kafkaesque.lab.bench.pipeline_measurements import Measurement

READ = "stream of 100-byte records, nothing done with them"
QUERY = "from_json, one-minute window, count"
FLOOR = "micro-batches of two records"
TABLE = "from a record to the Delta table that has it"
TREND = "from a post to the topic of trends"

GOALS_READ = {
    "connector": Goal("at least", 0.85),
    "connector-default": Goal("at least", 1.3),
    "confluent-loop": Goal("at least", 1.5),
    "plain-decoder": None,
}
GOALS_QUERY = {"connector": Goal("at least", 0.95)}
FLOOR_MS_MAX = 70.0
WARM_UP_ROUNDS = 4


def run(options: BenchmarkOptions) -> BenchmarkReport:
    from kafkaesque.pipeline.errors import PipelineError

    try:
        return _run(options)
    except PipelineError as error:
        raise LoadFailed(str(error)) from error


def _run(options: BenchmarkOptions) -> BenchmarkReport:
    from kafkaesque.lab.bench.pipeline_measurements import PipelineBench

    records = options.pick(3_000_000, 600_000)
    batch_records = options.pick(1_000_000, 200_000)
    report = new_report(
        "pipeline", options, {"records": records, "records_per_batch": batch_records}
    )
    with PipelineBench(options.directory, records, batch_records, options.say) as bench:
        report.peers |= bench.described
        _warm_up(options, READ, bench.readers(), options.pick(WARM_UP_ROUNDS, 1))
        _compare(report, options, READ, bench.readers(), GOALS_READ)
        _warm_up(options, QUERY, bench.queries(), 1)
        _compare(report, options, QUERY, bench.queries(), GOALS_QUERY)
        floor = report.case(FLOOR)
        for _ in range(options.pick(3, 1)):
            for name, measurement in bench.floors().items():
                floor.add(name, _measure(options, FLOOR, name, measurement))
        report.hold(floor, "p50_ms", Goal("at most", FLOOR_MS_MAX))
        for figure in ("p50_ms", "cpu_ms_per_batch"):
            report.compare(floor, figure, {"rate": None, "connector": None})
        for title, measurement in ((TABLE, bench.to_table), (TREND, bench.to_trend)):
            try:
                figures = _measure(options, title, "ours", measurement)
                report.case(title).add("ours", figures)
            except LoadFailed as error:
                # Keep the report of the earlier measurements.
                report.notes.append(f"{title}: not measured: {error}")
    report.notes.append(
        "connector: Spark's own, with kafka.max.poll.records=10000 and 4 MiB a fetch; "
        "connector-default: with Kafka's own defaults; confluent-loop: consume() and nothing else; "
        "rate: Spark's own source of numbers, the floor of Spark itself; settled: less the CPU of "
        "the JVM's compiler threads"
    )
    return report


def _warm_up(
    options: BenchmarkOptions, title: str, measurements: dict[str, Measurement], rounds: int
) -> None:
    for number in range(rounds):
        for name, measurement in measurements.items():
            _measure(options, title, f"warm-up {number + 1}: {name}", measurement)


def _compare(
    report: BenchmarkReport,
    options: BenchmarkOptions,
    title: str,
    measurements: dict[str, Measurement],
    goals: dict[str, Goal | None] | dict[str, Goal],
) -> None:
    case = report.case(title)
    names = list(measurements)
    for number in range(options.rounds):
        shift = number % len(names)
        # Each round has another order, so that warm-up and throttling affect each peer in turn.
        for name in names[shift:] + names[:shift]:
            case.add(name, _measure(options, title, name, measurements[name]))
    report.compare(case, "records_per_s", dict(goals))
    # On a busy machine the waiting times are random, but the CPU cost is not.
    for figure in ("cpu_s_per_million", "settled_cpu_s_per_million"):
        report.compare(case, figure, dict.fromkeys(goals))


def _measure(
    options: BenchmarkOptions, title: str, name: str, measurement: Measurement
) -> dict[str, float]:
    figures = measurement()
    shown = ", ".join(f"{figure} {value:,.4g}" for figure, value in figures.items())
    options.say(f"{title}: {name}: {shown}")
    return figures
