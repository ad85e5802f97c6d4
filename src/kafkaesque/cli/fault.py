"""`kafkaesque fault`: injects faults into brokers under load and checks the clients' history."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import click

from kafkaesque.cli.failures import CommandFailure, ExitCode
from kafkaesque.cli.options import examples
from kafkaesque.cli.render import Column, plain_table
from kafkaesque.lab.faults.campaign import SUMMED, Campaign, RunExecution, execute
from kafkaesque.lab.faults.catalog import NAMES, load_run
from kafkaesque.lab.faults.checks.checker import check_history
from kafkaesque.lab.faults.checks.history import HistoryUnusable
from kafkaesque.lab.faults.fault_run import FaultRunOptions
from kafkaesque.lab.faults.report import FaultReport
from kafkaesque.lab.faults.runner import load_history

ALL = "all"
SECONDS = 20.0


@click.group()
def fault() -> None:
    """Inject real faults into brokers under load and check what clients observed.

    Each run starts its own brokers in a temporary directory and touches nothing else.
    """


@fault.command("list", epilog=examples("kafkaesque fault list", "kafkaesque fault list --json"))
@click.option("--json", "as_json", is_flag=True, help="Print JSON and nothing else.")
def list_runs(as_json: bool) -> None:
    """List the runs, what they do and what must hold."""
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
        "kafkaesque fault run power-cut flipped-bit --repeat 10",
        "kafkaesque fault run power-cut --seconds 60 --seed 7 --keep /tmp/cut",
        "kafkaesque fault run all --seconds 10 --json",
    ),
)
@click.argument(
    "names", type=click.Choice([ALL, *NAMES]), metavar="NAME...", nargs=-1, required=True
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=1),
    help="How long to inject faults, without the time to read everything back.  [default: 20; "
    "50 rounds for kill-leader by name]",
)
@click.option(
    "--rounds", type=click.IntRange(min=1), help="Number of faults, regardless of the time."
)
@click.option(
    "--amount",
    type=click.IntRange(min=1),
    help="Messages to copy (transactions-copy) or requests to delay (transactions-delayed).",
)
@click.option(
    "--records-per-s",
    default=1000,
    show_default=True,
    type=click.IntRange(1, 100_000),
    help="Load during the faults.",
)
@click.option("--seed", default=1, show_default=True, help="Seed of the faults and their times.")
@click.option(
    "--repeat",
    default=1,
    show_default=True,
    type=click.IntRange(min=1),
    help="Repeat each run with consecutive seeds from --seed.",
)
@click.option(
    "--keep",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keep the history and the brokers' logs here, one directory per run (and seed).",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object as the last line.")
def run_faults(
    names: tuple[str, ...],
    seconds: float | None,
    rounds: int | None,
    amount: int | None,
    records_per_s: int,
    seed: int,
    repeat: int,
    keep: Path | None,
    as_json: bool,
) -> None:
    """Inject faults into brokers under load. Exits with 1 if a guarantee is violated.

    NAME is one of `kafkaesque fault list`, or all. Several runs end with a summary table.
    """
    # Brokers under test end with this process; mounts and files of a run need the cleanup.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    campaign = Campaign()
    for one in NAMES if ALL in names else dict.fromkeys(names):
        own_rounds = load_run(one).rounds if seconds is None and ALL not in names else None
        for its_seed in range(seed, seed + repeat):
            options = FaultRunOptions(
                seconds or SECONDS, records_per_s, its_seed, rounds or own_rounds, amount
            )
            where = keep / f"seed-{its_seed}" if keep is not None and repeat > 1 else keep
            done = _execute(one, options, where, as_json)
            campaign.executions.append(done)
            if done.is_impossible:
                break
    if len(campaign.executions) > 1:
        click.echo(_table(campaign, repeat > 1), err=as_json)
    if as_json:
        if len(names) == 1 and ALL not in names and repeat == 1:
            document = next((report.as_json() for report in campaign.reports), None)
        else:
            document = campaign.summary(ALL if ALL in names else " ".join(names))
        click.echo(json.dumps(document))
    _end(campaign, gaps_are_listed=ALL in names)


def _execute(name: str, options: FaultRunOptions, keep: Path | None, as_json: bool) -> RunExecution:
    click.echo(f"-- {name}: {load_run(name).purpose}", err=True)
    done = execute(name, options, lambda text: click.echo(text, err=True), keep)
    if done.trouble:
        click.echo(done.trouble, err=True)
    for line in done.lines:
        click.echo(line, err=as_json)
    return done


def _end(campaign: Campaign, *, gaps_are_listed: bool) -> None:
    """Set the exit code. A run that is not possible here is a failure only if it was requested by name."""
    if campaign.unfinished or (campaign.impossible and not gaps_are_listed):
        raise CommandFailure(
            "; ".join(campaign.unfinished or campaign.impossible),
            "`kafkaesque fault list` shows which runs are possible here; --keep keeps the logs",
        )
    if not campaign.passed:
        click.get_current_context().exit(int(ExitCode.FAILED))


def _table(campaign: Campaign, with_seeds: bool) -> str:
    """One row per run, the totals, and how many passed."""
    rows: list[dict[str, object]] = []
    for one in campaign.executions:
        figures = {} if one.report is None else one.report.as_json()
        rows.append({**figures, "name": one.name, "seed": one.seed, "passed": one.verdict})
    passed = sum(report.passed for report in campaign.reports)
    possible = len(campaign.executions) - len(campaign.impossible)
    rows.append({"name": "total", **campaign.totals(), "passed": f"{passed} of {possible}"})
    columns = [
        Column("name", "run"),
        *([Column("seed", "seed", "count")] if with_seeds else []),
        *(Column(figure, figure, "count") for figure in SUMMED),
        Column("longest_gap_ms", "longest gap ms", "count"),
        Column("passed", "passed"),
    ]
    return plain_table(columns, rows)


@fault.command("check", epilog=examples("kafkaesque fault check /tmp/cut/power-cut/history.jsonl"))
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object as the last line.")
def check_file(file: Path, as_json: bool) -> None:
    """Check a kept history again. Exits with 1 if it has an illegal anomaly."""
    try:
        history = load_history(file)
        started = time.perf_counter()
        verdict = check_history(history)
    except HistoryUnusable as error:
        raise CommandFailure(
            f"{file} is not a history: {error}",
            "use the history.jsonl that `fault run --keep DIRECTORY` wrote",
        ) from error
    seconds = time.perf_counter() - started
    records = verdict.figures.acknowledged + verdict.figures.polled
    report = FaultReport(name=history.name, verdict=verdict)
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
