"""`kafkaesque fault`: break brokers under load and judge what their clients saw."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import click

from kafkaesque.cli.failures import ExitCode, Failure
from kafkaesque.cli.options import examples
from kafkaesque.faults.catalog import NAMES, load_run
from kafkaesque.faults.checker import check_history
from kafkaesque.faults.history import HistoryUnusable
from kafkaesque.faults.namespaces import NetworkFailed
from kafkaesque.faults.performance import NotPossible, load_history, run_by_name
from kafkaesque.faults.report import Report
from kafkaesque.faults.shims import ShimFailed
from kafkaesque.faults.stage import RunOptions
from kafkaesque.faults.workload import WorkloadFailed
from kafkaesque.testing.broker_process import BrokerNotReady

ALL = "all"
SECONDS = 20.0


@click.group()
def fault() -> None:
    """Break brokers for real, under load, and judge what clients saw.

    Every run starts its own brokers in a temporary directory; nothing of yours is touched.
    """


@fault.command("list", epilog=examples("kafkaesque fault list", "kafkaesque fault list --json"))
@click.option("--json", "as_json", is_flag=True, help="Print JSON and nothing else.")
def list_runs(as_json: bool) -> None:
    """Name the runs, what they do and what must hold."""
    rows = [{"name": name, **_facts(name)} for name in NAMES]
    if as_json:
        click.echo(json.dumps(rows))
        return
    for row in rows:
        kind = "a cluster" if row["brokers"] != 1 else "one broker"
        click.echo(f"{row['name']:<19} {kind}: {row['purpose']}")
        click.echo(f"{'':<19} must hold: {row['promise']}")
        if row["impossible"] is not None:
            click.echo(f"{'':<19} NOT POSSIBLE HERE: {row['impossible']}")


def _facts(name: str) -> dict[str, str | int | None]:
    run = load_run(name)
    return {
        "brokers": run.brokers,
        "purpose": run.purpose,
        "promise": run.promise,
        "impossible": run.impossible(),
    }


@fault.command(
    "run",
    epilog=examples(
        "kafkaesque fault run kill-leader",
        "kafkaesque fault run kill-leader --rounds 5",
        "kafkaesque fault run power-cut --seconds 60 --seed 7 --keep /tmp/cut",
        "kafkaesque fault run all --seconds 10 --json",
    ),
)
@click.argument("name", type=click.Choice([ALL, *NAMES]), metavar="NAME")
@click.option(
    "--seconds",
    type=click.FloatRange(min=1),
    help="How long faults are injected; reading everything back comes on top.  [default: 20, for "
    "kill-leader alone 50 rounds]",
)
@click.option(
    "--rounds", type=click.IntRange(min=1), help="How many faults, however long that takes."
)
@click.option(
    "--amount",
    type=click.IntRange(min=1),
    help="Messages to copy (transactions-copy), requests to hold back (transactions-delayed).",
)
@click.option("--records-per-s", default=1000, show_default=True, type=click.IntRange(1, 100_000))
@click.option("--seed", default=1, show_default=True, help="Chooses when and what is broken.")
@click.option(
    "--keep",
    type=click.Path(file_okay=False, path_type=Path),
    help="Leave the history and the brokers' logs here, a directory a run.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object as the last line.")
def run_faults(
    name: str,
    seconds: float | None,
    rounds: int | None,
    amount: int | None,
    records_per_s: int,
    seed: int,
    keep: Path | None,
    as_json: bool,
) -> None:
    """Break brokers under load; exit code 1 if anything that must hold does not.

    NAME is one of `kafkaesque fault list`, or all.
    """
    # The brokers under test end with this process, the mounts and files of a run do not.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if rounds is None and seconds is None and name != ALL:
        rounds = load_run(name).rounds
    options = RunOptions(seconds or SECONDS, records_per_s, seed, rounds, amount)
    reports: list[Report] = []
    not_possible: list[str] = []
    unfinished: list[str] = []
    for one in NAMES if name == ALL else (name,):
        click.echo(f"-- {one}: {load_run(one).purpose}", err=True)
        try:
            reports.append(_perform(one, options, keep, as_json))
        except NotPossible as error:
            # Said plainly; alone it is a failure, among others it is a gap in the list.
            not_possible.append(str(error))
            click.echo(str(error), err=True)
        except (WorkloadFailed, BrokerNotReady, ShimFailed, NetworkFailed) as error:
            unfinished.append(f"{one} could not be finished: {error}")
            click.echo(unfinished[-1], err=True)
    if as_json:
        click.echo(json.dumps(_summary(reports, not_possible) if name == ALL else _one(reports)))
    if unfinished or (not_possible and name != ALL):
        raise Failure("; ".join(unfinished or not_possible))
    if not all(report.passed for report in reports):
        click.get_current_context().exit(int(ExitCode.FAILED))


def _perform(name: str, options: RunOptions, keep: Path | None, as_json: bool) -> Report:
    report, history = run_by_name(name, options, lambda text: click.echo(text, err=True), keep)
    for line in report.lines(history):
        click.echo(line, err=as_json)
    return report


def _one(reports: list[Report]) -> dict[str, object] | None:
    return reports[0].as_json() if reports else None


def _summary(reports: list[Report], not_possible: list[str]) -> dict[str, object]:
    rows = [report.as_json() for report in reports]
    figures = ("acknowledged", "lost", "duplicated", "reordered", "anomalies")
    totals = {figure: sum(int(str(row[figure])) for row in rows) for figure in figures}
    return {
        "name": ALL,
        "passed": all(report.passed for report in reports),
        **totals,
        "longest_gap_ms": max((int(str(row["longest_gap_ms"])) for row in rows), default=0),
        "not_possible": not_possible,
        "runs": rows,
    }


@fault.command("check", epilog=examples("kafkaesque fault check /tmp/cut/power-cut/history.jsonl"))
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object as the last line.")
def check_file(file: Path, as_json: bool) -> None:
    """Judge a kept history again; exit code 1 if it has an anomaly that is not legal."""
    try:
        history = load_history(file)
        started = time.perf_counter()
        verdict = check_history(history)
    except HistoryUnusable as error:
        raise Failure(f"{file} is no history: {error}") from error
    seconds = time.perf_counter() - started
    records = verdict.figures.acknowledged + verdict.figures.polled
    report = Report(name=history.name, verdict=verdict)
    click.echo(
        f"{len(history.operations)} operations, {records} records checked in {seconds:.2f} s",
        err=as_json,
    )
    for line in report.lines(history):
        click.echo(line, err=as_json)
    if as_json:
        click.echo(json.dumps(report.as_json()))
    if not report.passed:
        click.get_current_context().exit(int(ExitCode.FAILED))
