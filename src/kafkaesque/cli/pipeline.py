"""`kafkaesque pipeline`: run, backfill, replay, status, stop, jars, doctor, list.

Nothing of Spark is imported before a command needs it; `status` and `stop` never do.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kafkaesque.cli.client import Connection
from kafkaesque.cli.failures import ExitCode, Failure, usage
from kafkaesque.cli.options import client_options, examples, json_option, read_pair
from kafkaesque.cli.render import Column, Screen
from kafkaesque.pipeline.errors import PipelineError
from kafkaesque.pipeline.paths import DataDirectory

if TYPE_CHECKING:
    from kafkaesque.pipeline.operate.backfill import LogRange, SideTables
    from kafkaesque.pipeline.operate.context import RunContext

F = TypeVar("F", bound=Callable[..., Any])

DATA_DEFAULT = "kafkaesque-data/pipeline"
RUN_OPTIONS = (
    *("once", "interval_s", "rows_max", "start"),
    *("restarts_max", "http_listen", "end_with_stdin"),
)
STOP_TIMEOUT_S = 120.0

data_option = click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    default=DATA_DEFAULT,
    show_default=True,
    help="Tables, checkpoints and status of the pipeline.",
)


def spark_options(function: F) -> F:
    """Where Spark runs and which engine reads."""
    for option in (
        click.option("--driver-memory", default="1g", show_default=True),
        click.option(
            "--engine",
            type=click.Choice(["auto", "python", "jvm"]),
            default="auto",
            show_default=True,
            help="Our own source, or Spark's Kafka connector.",
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
    """What the pipeline refuses, as a failure of the command line."""
    try:
        yield
    except PipelineError as error:
        raise Failure(error.message, error.fix) from error


def make_context(
    connection: Connection,
    data: Path,
    master: str,
    engine: Any,
    driver_memory: str,
    assignments: tuple[str, ...],
) -> RunContext:
    """Spark started, everything else checked before."""
    from kafkaesque.pipeline.operate.context import RunContext, read_settings
    from kafkaesque.pipeline.session import SessionSettings, start_session

    settings = read_settings(dict(read_pair(text) for text in assignments))
    connection.reach()
    directory = DataDirectory(data.resolve())
    session = SessionSettings(
        directory.scratch,
        master=master,
        driver_memory=driver_memory,
        app_name="kafkaesque pipeline",
    )
    spark = start_session(session)
    kafka = {**connection.properties, "bootstrap.servers": connection.bootstrap}
    return RunContext(spark, directory, kafka, engine, settings)


@click.group()
def pipeline() -> None:
    """Spark over the log: trends, chat analytics, archive; live, backfilled and replayed."""


@pipeline.command(
    "list", epilog=examples("kafkaesque pipeline list", "kafkaesque pipeline list --settings")
)
@click.option("--settings", is_flag=True, help="List the settings that --set takes instead.")
@json_option
def list_(settings: bool, screen: Screen) -> None:
    """List the queries, sets of queries and reports that `run` takes; or every setting."""
    from kafkaesque.cli.pipeline_run import listed, listed_settings
    from kafkaesque.pipeline.session import require_packages

    with explained_errors():
        require_packages()
        rows = listed_settings() if settings else listed()
    columns = [Column(name, name) for name in rows[0] if name != "tables"]
    content: Any = {"settings" if settings else "queries": rows}
    screen.document(content, lambda: screen.table(columns, rows))


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
@click.option("--once", is_flag=True, help="Read what is there, then end.")
@click.option("--every", "interval_s", default=0.0, metavar="SECONDS", help="Start of each batch.")
@click.option("--rows-max", type=click.IntRange(min=1), help="Records of one batch at most.")
@click.option(
    "--start",
    default="earliest",
    show_default=True,
    help="Where a new query begins: earliest, latest, or offsets as JSON.",
)
@click.option(
    "--restarts",
    "restarts_max",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    help="How often in a row a query that fails is started again; a finished batch counts anew.",
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
def run(names: tuple[str, ...], connection: Connection, screen: Screen, **options: Any) -> int:
    """Run queries until Ctrl-C, `pipeline stop`, or, with --once, until they have read it all.

    NAME is a query, a set of queries or a report of `pipeline list`. Prints one line `ready ...` when
    all queries run; topics that they read or write are made if a service declares them.
    """
    from kafkaesque.cli.pipeline_run import Wanted, run_queries, run_reports
    from kafkaesque.pipeline.operate.reports import REPORTS

    wanted = Wanted(names, *(options.pop(name) for name in RUN_OPTIONS))
    with explained_errors():
        reports = [name for name in names if name in REPORTS]
        if reports and len(reports) < len(names):
            raise usage("Reports and queries are run by themselves.")
        if reports:
            return run_reports(reports, make_context(connection, **options), screen)
        return run_queries(wanted, lambda: make_context(connection, **options), screen)


def range_options(function: F) -> F:
    """Which part of the log, and what to do with the result."""
    for option in (
        click.option(
            "--swap", is_flag=True, help="Put the result in the place of the table's rows."
        ),
        click.option("--to-offsets", help='JSON, as {"topic": {"0": 123}}.'),
        click.option("--from-offsets", help='JSON, as {"topic": {"0": 123}}.'),
        click.option("--to", "to_time", help="ISO time (UTC unless it says), exclusive."),
        click.option("--from", "from_time", help="ISO time (UTC unless it says)."),
    ):
        function = option(function)
    return function


def _log_range(options: dict[str, Any]) -> LogRange:
    from kafkaesque.pipeline.operate.backfill import LogRange
    from kafkaesque.pipeline.source.offsets import from_json

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
        raise usage(f"'{text}' is no ISO time, as 2026-11-16T12:00.") from None
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
def backfill(name: str, connection: Connection, screen: Screen, **options: Any) -> None:
    """Compute a range of the log again, at once, into side tables; --swap puts them in place."""
    from kafkaesque.cli.pipeline_run import progress_printer
    from kafkaesque.pipeline.operate import backfill as work
    from kafkaesque.pipeline.operate.queries import find_query

    swap = options.pop("swap")
    with explained_errors():
        log_range = _log_range(options)
        context = make_context(connection, **options)
        side = work.backfill(find_query(name), context, log_range, progress_printer(name, screen))
        _finish(side, context, swap, screen)


@pipeline.command(
    epilog=examples("kafkaesque pipeline replay trends --from 2026-11-16T10:00 --rows-max 50000")
)
@click.argument("name")
@data_option
@spark_options
@range_options
@click.option("--rows-max", type=click.IntRange(min=1), default=100_000, show_default=True)
@client_options()
def replay(
    name: str, rows_max: int, connection: Connection, screen: Screen, **options: Any
) -> None:
    """Run a range of the log through the stream again, in batches, into side tables."""
    from kafkaesque.cli.pipeline_run import progress_printer
    from kafkaesque.pipeline.operate import backfill as work
    from kafkaesque.pipeline.operate.queries import find_query

    swap = options.pop("swap")
    with explained_errors():
        log_range = _log_range(options)
        context = make_context(connection, **options)
        side = work.replay(
            find_query(name), context, log_range, rows_max, progress_printer(name, screen)
        )
        _finish(side, context, swap, screen)


def _finish(side: SideTables, context: RunContext, swap: bool, screen: Screen) -> None:
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
@click.option("--lag", is_flag=True, help="Ask the broker for the lag as of now.")
@client_options()
def status(data: Path, lag: bool, connection: Connection, screen: Screen) -> None:
    """Show every query that ever ran here: state, last batch, lag."""
    from kafkaesque.pipeline.operate.status import statuses, with_lag
    from kafkaesque.pipeline.source.options import read_cluster

    with explained_errors():
        rows = statuses(DataDirectory(data))
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
    screen.document({"queries": rows}, lambda: screen.table(columns, rows, "no query ran here yet"))


@pipeline.command(
    epilog=examples(
        "kafkaesque pipeline stop trends",
        "kafkaesque pipeline stop posts trends --timeout 300 --json",
    )
)
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@data_option
@click.option("--timeout", "timeout_s", default=STOP_TIMEOUT_S, show_default=True)
@json_option
def stop(names: tuple[str, ...], data: Path, timeout_s: float, screen: Screen) -> None:
    """Stop queries between two batches, and wait until they have stopped."""
    from kafkaesque.pipeline.operate.status import request_stop

    for name in names:
        with explained_errors():
            request_stop(DataDirectory(data), name, timeout_s)
        screen.line(f"{name}: stopped")
    screen.document({"stopped": names}, lambda: None)


@pipeline.command(
    epilog=examples(
        "kafkaesque pipeline jars --fetch",
        "kafkaesque pipeline jars --fetch --repo https://maven.example.org/maven2",
        "kafkaesque pipeline jars --json | jq -r '.jars[]'",
    )
)
@click.option("--fetch", is_flag=True, help="Download what is missing, and check it.")
@click.option("--repo", help="Maven repository. [default: Maven Central]")
@json_option
def jars(fetch: bool, repo: str | None, screen: Screen) -> None:
    """Show, or fetch, the jars of Spark's own Kafka connector."""
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
    """Say what the pipeline finds on this machine, and what is missing."""
    from kafkaesque.pipeline.doctor import examine

    findings = examine(os.environ)
    rows = [
        {"what": item.what, "state": item.state, "text": item.text, "fix": item.fix}
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
                screen.line(f"  {item.what}: {item.fix}")

    screen.document({"findings": rows}, show)
    failed = any(item.state == "fail" for item in findings)
    return int(ExitCode.FAILED if failed else ExitCode.OK)
