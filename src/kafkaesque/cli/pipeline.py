"""`kafkaesque pipeline`: run, backfill, replay, status, stop, jars, doctor, list.

Spark is imported only by commands that need it; `status` and `stop` do not.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kafkaesque.admin.connection import ClusterConnection
from kafkaesque.cli.failures import CannotConnect, CommandFailure, ExitCode, usage
from kafkaesque.cli.options import client_options, examples, json_option, read_pair
from kafkaesque.cli.render import Column, Screen
from kafkaesque.cli.service_process import host_port
from kafkaesque.pipeline.errors import CannotListen, PipelineError
from kafkaesque.pipeline.paths import PipelineDirectory

if TYPE_CHECKING:
    from kafkaesque.pipeline.operate.backfill import LogRange, SideTables
    from kafkaesque.pipeline.operate.context import PipelineContext
    from kafkaesque.pipeline.operate.reports import ReportResult

F = TypeVar("F", bound=Callable[..., Any])

DATA_DEFAULT = "kafkaesque-data/pipeline"
TRIGGER_OPTIONS = ("interval_s", "once", "rows_max", "start", "restarts_max")
PROGRESS_EVERY_S = 5.0
STOP_TIMEOUT_S = 120.0

data_option = click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    default=DATA_DEFAULT,
    show_default=True,
    help="Directory of tables, checkpoints and status.",
)


def spark_options(function: F) -> F:
    """Options for the Spark session and the engine that reads Kafka."""
    for option in (
        click.option(
            "--driver-memory", default="1g", show_default=True, help="Memory of Spark's driver."
        ),
        click.option(
            "--engine",
            type=click.Choice(["auto", "python", "jvm"]),
            default="auto",
            show_default=True,
            help="How Spark reads Kafka: python is our own source, jvm is Spark's connector.",
        ),
        click.option(
            "--master",
            default="local[*]",
            show_default=True,
            help="local[N], or spark://HOST:PORT of a cluster.",
        ),
        click.option(
            "--set",
            "assignments",
            multiple=True,
            metavar="NAME=VALUE",
            help="Any setting of `pipeline list --settings`; may be repeated.",
        ),
    ):
        function = option(function)
    return function


@contextmanager
def explained_errors() -> Iterator[None]:
    """Turns a PipelineError into a failure of the command."""
    try:
        yield
    except CannotListen as error:
        raise CannotConnect(error.message, error.fix) from error
    except PipelineError as error:
        raise CommandFailure(error.message, error.fix) from error


def require_spark() -> None:
    """Fails the command, with the fix, unless the packages of `[spark]` are installed."""
    from kafkaesque.pipeline.session import require_packages

    with explained_errors():
        require_packages()


def make_context(
    connection: ClusterConnection,
    data: Path,
    master: str,
    engine: Any,
    driver_memory: str,
    assignments: tuple[str, ...],
) -> PipelineContext:
    """Check the settings and the connection, then start Spark."""
    from kafkaesque.pipeline.operate.context import PipelineContext, read_settings
    from kafkaesque.pipeline.session import SessionSettings, start_session

    settings = read_settings(dict(read_pair(text) for text in assignments))
    connection.reach()
    directory = PipelineDirectory(data.resolve())
    session = SessionSettings(
        directory.scratch,
        master=master,
        driver_memory=driver_memory,
        app_name="kafkaesque pipeline",
    )
    spark = start_session(session)
    kafka = {**connection.properties, "bootstrap.servers": connection.bootstrap}
    return PipelineContext(spark, directory, kafka, engine, settings)


@click.group()
def pipeline() -> None:
    """Run Spark queries over topics: trends, chat analytics, archive; live, backfill and replay."""


@pipeline.command(
    "list", epilog=examples("kafkaesque pipeline list", "kafkaesque pipeline list --settings")
)
@click.option("--settings", is_flag=True, help="List the settings of --set instead.")
@json_option
def list_(settings: bool, screen: Screen) -> None:
    """List the queries, sets of queries and reports of `run`, or all settings."""
    require_spark()
    with explained_errors():
        rows = _setting_rows() if settings else _query_rows()
    columns = [Column(name, name) for name in rows[0] if name != "tables"]
    content: Any = {"settings" if settings else "queries": rows}
    screen.document(content, lambda: screen.table(columns, rows))


def _query_rows() -> list[dict[str, Any]]:
    """One row for each query, set and report."""
    from kafkaesque.pipeline.operate.queries import SETS, all_queries
    from kafkaesque.pipeline.operate.reports import REPORTS

    rows: list[dict[str, Any]] = [
        {
            "name": query.name,
            "kind": "stream",
            "reads": query.topics or "every topic",
            "tables": [table.name for table in query.tables],
            "doc": query.doc,
        }
        for query in all_queries().values()
    ]
    rows += [
        {"name": name, "kind": "set", "reads": "", "tables": [], "doc": ", ".join(queries)}
        for name, queries in SETS.items()
    ]
    for name, report in REPORTS.items():
        doc = (report.__doc__ or "").strip().splitlines()[0]
        rows.append({"name": name, "kind": "report", "reads": "tables", "tables": [], "doc": doc})
    return rows


def _setting_rows() -> list[dict[str, Any]]:
    from kafkaesque.pipeline.operate.context import SETTINGS

    return [
        {"name": item.name, "default": item.show(item.default), "about": item.doc}
        for item in SETTINGS.values()
    ]


@pipeline.command(
    epilog=examples(
        "kafkaesque pipeline run posts trends trends-live",
        "kafkaesque pipeline run light --every 2            # what `kafkaesque up` runs",
        "kafkaesque pipeline run archive --once --set archive.topics='orders|payments'",
        "kafkaesque pipeline run quality",
        "kafkaesque pipeline run posts --master spark://host:7077 --engine jvm",
    )
)
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@data_option
@spark_options
@click.option("--once", is_flag=True, help="Read to the current end of the topics, then exit.")
@click.option(
    "--every",
    "interval_s",
    default=0.0,
    metavar="SECONDS",
    help="Interval between the starts of batches.",
)
@click.option(
    "--rows-max", type=click.IntRange(min=1), help="Maximum number of records in a batch."
)
@click.option(
    "--start",
    default="earliest",
    show_default=True,
    help="Where a new query starts: earliest, latest, or offsets as JSON.",
)
@click.option(
    "--restarts",
    "restarts_max",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    help="How many times in a row a failed query is restarted; a finished batch resets the count.",
)
@click.option(
    "--http-listen",
    metavar="HOST:PORT",
    default="127.0.0.1:0",
    show_default=True,
    help="Address of /status, /progress/NAME, /metrics, /healthz and /readyz.",
)
@click.option("--end-with-stdin", is_flag=True, hidden=True, help="For supervisors.")
@client_options()
def run(
    names: tuple[str, ...], connection: ClusterConnection, screen: Screen, **options: Any
) -> int:
    """Run queries until Ctrl-C or `pipeline stop`.

    NAME is a query, a set of queries or a report of `pipeline list`. Prints one line `ready ...` when
    all queries run. Creates missing topics that a service of the platform declares.
    """
    require_spark()
    from kafkaesque.pipeline.operate.reports import REPORTS
    from kafkaesque.pipeline.operate.streaming import Trigger
    from kafkaesque.pipeline.process import PipelineOptions, run_queries

    trigger = Trigger(**{name: options.pop(name) for name in TRIGGER_OPTIONS})
    http_listen, end_with_stdin = options.pop("http_listen"), options.pop("end_with_stdin")
    with explained_errors():
        reports = [name for name in names if name in REPORTS]
        if reports and len(reports) < len(names):
            raise usage("Reports and queries cannot run together: use one command for each.")
        if reports:
            return _run_reports(reports, make_context(connection, **options), screen)
        run_options = PipelineOptions(names, trigger, host_port(http_listen), end_with_stdin)
        results = run_queries(run_options, lambda: make_context(connection, **options), screen.note)
    rows = [{"query": result.query, "failure": result.failure} for result in results]
    screen.document({"queries": rows}, lambda: None)
    failed = [result for result in results if result.failure]
    for result in failed:
        screen.warn(f"{result.query}: {result.failure}")
    return int(ExitCode.FAILED if failed else ExitCode.OK)


def _run_reports(names: list[str], context: PipelineContext, screen: Screen) -> int:
    """Run one report after another; the exit code is 1 if the quality report found a problem."""
    from kafkaesque.pipeline.operate.reports import run_report
    from kafkaesque.pipeline.topics import declared, ensure_topics

    has_quality_alerts = False
    ensure_topics(context.kafka, declared([context.settings.alerts_topic]))
    for name in names:
        report = run_report(name, context)
        _show_report(report, screen)
        has_quality_alerts |= name == "quality" and bool(report.alerts)
    return int(ExitCode.FAILED if has_quality_alerts else ExitCode.OK)


def _show_report(report: ReportResult, screen: Screen) -> None:
    content = {"report": report.name, "rows": report.rows, "alerts": report.alerts}
    document = json.loads(json.dumps(content, default=str))
    columns = [Column(key, key) for key in (report.rows[0] if report.rows else {})]
    screen.document(document, lambda: screen.table(columns, document["rows"], "nothing to report"))


def range_options(function: F) -> F:
    """Options for the range of the log and the destination of the result."""
    for option in (
        click.option("--swap", is_flag=True, help="Replace the table's rows with the result."),
        click.option(
            "--to-offsets", help='Offsets to stop before, as JSON: {"topic": {"0": 123}}.'
        ),
        click.option("--from-offsets", help='First offsets, as JSON: {"topic": {"0": 123}}.'),
        click.option(
            "--to", "to_time", help="Time to stop before, as ISO time (UTC unless it has a zone)."
        ),
        click.option(
            "--from",
            "from_time",
            help="Time to start from, as ISO time (UTC unless it has a zone).",
        ),
    ):
        function = option(function)
    return function


def _log_range(options: dict[str, Any]) -> LogRange:
    from kafkaesque.pipeline.operate.backfill import LogRange
    from kafkaesque.pipeline.rules.offsets import from_json

    def offsets(name: str) -> Any:
        text = options.pop(name)
        return None if text is None else from_json(text, f"--{name.replace('_', '-')}")

    return LogRange(
        _time_ms(options.pop("from_time")),
        _time_ms(options.pop("to_time")),
        offsets("from_offsets"),
        offsets("to_offsets"),
    )


def _time_ms(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise usage(f"'{text}' is not an ISO time, such as 2026-11-16T12:00.") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)


@pipeline.command(
    epilog=examples(
        "kafkaesque pipeline backfill posts --from 2026-11-01 --to 2026-11-08",
        "kafkaesque pipeline backfill archive --swap",
    )
)
@click.argument("name")
@data_option
@spark_options
@range_options
@client_options()
def backfill(name: str, connection: ClusterConnection, screen: Screen, **options: Any) -> None:
    """Recompute a range of the log in one batch into side tables; --swap puts them in place."""
    require_spark()
    from kafkaesque.pipeline.operate import backfill as work
    from kafkaesque.pipeline.operate.queries import find_query

    swap = options.pop("swap")
    with explained_errors():
        log_range = _log_range(options)
        context = make_context(connection, **options)
        side = work.backfill(find_query(name), context, log_range, _progress_printer(name, screen))
        _finish(side, context, swap, screen)


@pipeline.command(
    epilog=examples("kafkaesque pipeline replay trends --from 2026-11-16T10:00 --rows-max 50000")
)
@click.argument("name")
@data_option
@spark_options
@range_options
@click.option(
    "--rows-max",
    type=click.IntRange(min=1),
    default=100_000,
    show_default=True,
    help="Maximum number of records in a batch.",
)
@client_options()
def replay(
    name: str, rows_max: int, connection: ClusterConnection, screen: Screen, **options: Any
) -> None:
    """Run a range of the log through the streaming query again, in batches, into side tables."""
    require_spark()
    from kafkaesque.pipeline.operate import backfill as work
    from kafkaesque.pipeline.operate.queries import find_query

    swap = options.pop("swap")
    with explained_errors():
        log_range = _log_range(options)
        context = make_context(connection, **options)
        side = work.replay(
            find_query(name), context, log_range, rows_max, _progress_printer(name, screen)
        )
        _finish(side, context, swap, screen)


def _progress_printer(name: str, screen: Screen) -> Callable[[str, int, int], None]:
    """A callback that prints the progress of a long operation every few seconds."""
    due_s = time.monotonic() + PROGRESS_EVERY_S

    def show(what: str, done: int, total: int) -> None:
        nonlocal due_s
        if time.monotonic() >= due_s:
            due_s = time.monotonic() + PROGRESS_EVERY_S
            share = f" ({done / total:.0%})" if total else ""
            screen.note(f"{name}: {done:,} of {total:,} {what}{share}")

    return show


def _finish(side: SideTables, context: PipelineContext, swap: bool, screen: Screen) -> None:
    from kafkaesque.pipeline.operate import backfill as work

    rows = side.rows()
    if swap:
        work.swap(side, context)
        work.discard(side)
    document = {
        "run": side.run,
        "rows": rows,
        "swapped": swap,
        "directory": None if swap else str(side.directory),
    }

    def show() -> None:
        for table, count in rows.items():
            screen.line(f"{table}: {count} rows {'swapped in' if swap else f'in {side.directory}'}")

    screen.document(document, show)


@pipeline.command(
    epilog=examples(
        "kafkaesque pipeline status",
        "kafkaesque pipeline status --lag --json | jq '.queries[] | {query, lag_records}'",
    )
)
@data_option
@click.option("--lag", is_flag=True, help="Query the brokers for the current lag.")
@client_options()
def status(data: Path, lag: bool, connection: ClusterConnection, screen: Screen) -> None:
    """Show all queries that have run in this directory: state, last batch, lag."""
    from kafkaesque.pipeline.operate.status import statuses, with_lag
    from kafkaesque.pipeline.source.options import read_cluster

    with explained_errors():
        rows = statuses(PipelineDirectory(data))
        if lag:
            connection.reach()
            properties = {**connection.properties, "bootstrap.servers": connection.bootstrap}
            rows = [with_lag(row, read_cluster(properties)) for row in rows]
    columns = [
        Column("query", "query"),
        Column("state", "state", "state"),
        Column("batch", "batch", "count"),
        Column("input_rows", "rows", "count"),
        Column("rows_per_s", "rows/s", "count"),
        Column("duration_ms", "ms", "count"),
        Column("lag_records", "lag", "count"),
        Column("late_rows", "late", "count"),
        Column("failure", "failure"),
    ]
    screen.document(
        {"queries": rows}, lambda: screen.table(columns, rows, "no query has run here yet")
    )


@pipeline.command(
    epilog=examples(
        "kafkaesque pipeline stop trends",
        "kafkaesque pipeline stop posts trends --timeout 300 --json",
    )
)
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@data_option
@click.option("--timeout", "timeout_s", default=STOP_TIMEOUT_S, show_default=True, metavar="SECONDS",
              help="How long to wait until they have stopped.")  # fmt: skip
@json_option
def stop(names: tuple[str, ...], data: Path, timeout_s: float, screen: Screen) -> None:
    """Stop queries between two batches, and wait until they have stopped."""
    from kafkaesque.pipeline.operate.status import request_stop

    for name in names:
        with explained_errors():
            request_stop(PipelineDirectory(data), name, timeout_s)
        screen.line(f"{name}: stopped")
    screen.document({"stopped": names}, lambda: None)


@pipeline.command(
    epilog=examples(
        "kafkaesque pipeline jars --fetch",
        "kafkaesque pipeline jars --fetch --repo https://maven.example.org/maven2",
        "kafkaesque pipeline jars --json | jq -r '.jars[]'",
    )
)
@click.option("--fetch", is_flag=True, help="Download missing jars and verify their checksums.")
@click.option("--repo", help="Maven repository.  [default: Maven Central]")
@json_option
def jars(fetch: bool, repo: str | None, screen: Screen) -> None:
    """Show or download the jars of Spark's Kafka connector."""
    from kafkaesque.pipeline import jars as work
    from kafkaesque.pipeline.session import spark_version

    with explained_errors():
        version = spark_version()
        if fetch:
            paths = work.fetch(version, os.environ, repository=repo, notify=screen.note)
        else:
            paths = work.find(version, os.environ)
    listed = [str(path) for path in paths]
    document = {"spark": version, "jars": listed}
    screen.document(document, lambda: screen.line("\n".join(listed)))


@pipeline.command(
    epilog=examples("kafkaesque pipeline doctor", "kafkaesque pipeline doctor --json")
)
@json_option
def doctor(screen: Screen) -> int:
    """Check what the pipeline needs on this machine: Java, packages, jars."""
    from kafkaesque.pipeline.doctor import examine

    findings = examine(os.environ)
    rows = [
        {"what": item.area, "state": item.status, "text": item.text, "fix": item.fix}
        for item in findings
    ]

    def show() -> None:
        columns = [
            Column("what", "what"),
            Column("state", "state", "state"),
            Column("text", "found"),
        ]
        screen.table(columns, rows)
        for item in findings:
            if item.fix:
                screen.line(f"  {item.area}: {item.fix}")

    screen.document({"findings": rows}, show)
    failed = any(item.status == "fail" for item in findings)
    return int(ExitCode.FAILED if failed else ExitCode.OK)
