"""`kafkaesque fault`: injects faults into brokers under load and checks the clients' history."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from kafkaesque.cli.failures import CommandFailure, ExitCode
from kafkaesque.cli.options import examples
from kafkaesque.cli.render import Column, plain_table
from kafkaesque.lab.faults.catalog import NAMES, load_run
from kafkaesque.lab.faults.checks.checker import check_history
from kafkaesque.lab.faults.checks.history import HistoryUnusable
from kafkaesque.lab.faults.fault_run import RunOptions
from kafkaesque.lab.faults.report import Report
from kafkaesque.lab.faults.runner import NotPossible, load_history, run_by_name
from kafkaesque.lab.faults.shims import ShimFailed
from kafkaesque.lab.faults.workload import WorkloadFailed
from kafkaesque.lab.harness.namespaces import NetworkFailed
from kafkaesque.testing.broker_process import BrokerNotReady

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
@click.option("--records-per-s", default=1000, show_default=True, type=click.IntRange(1, 100_000))
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
    turns: list[_RunExecution] = []
    for one in NAMES if ALL in names else dict.fromkeys(names):
        own_rounds = load_run(one).rounds if seconds is None and ALL not in names else None
        for its_seed in range(seed, seed + repeat):
            options = RunOptions(
                seconds or SECONDS, records_per_s, its_seed, rounds or own_rounds, amount
            )
            where = keep / f"seed-{its_seed}" if keep is not None and repeat > 1 else keep
            turns.append(_perform(one, options, where, as_json))
            if turns[-1].is_impossible:
                break
    if len(turns) > 1:
        click.echo(_table(turns, repeat > 1), err=as_json)
    if as_json:
        is_one = len(names) == 1 and ALL not in names and repeat == 1
        click.echo(json.dumps(_one(turns) if is_one else _summary(names, turns)))
    _end(turns, gaps_are_listed=ALL in names)


@dataclass(frozen=True, slots=True)
class _RunExecution:
    """One execution of a run: its report, or why it has none."""

    name: str
    seed: int
    report: Report | None = None
    trouble: str = ""
    is_impossible: bool = False
    """This machine does not support the run."""

    @property
    def verdict(self) -> str:
        if self.report is None:
            return "not possible here" if self.is_impossible else "NOT FINISHED"
        return "yes" if self.report.passed else "NO"


def _perform(name: str, options: RunOptions, keep: Path | None, as_json: bool) -> _RunExecution:
    click.echo(f"-- {name}: {load_run(name).purpose}", err=True)
    try:
        report, history = run_by_name(name, options, lambda text: click.echo(text, err=True), keep)
    except NotPossible as error:
        turn = _RunExecution(name, options.seed, trouble=str(error), is_impossible=True)
    except (WorkloadFailed, BrokerNotReady, ShimFailed, NetworkFailed) as error:
        turn = _RunExecution(name, options.seed, trouble=f"{name} could not be finished: {error}")
    else:
        for line in report.lines(history):
            click.echo(line, err=as_json)
        return _RunExecution(name, options.seed, report)
    click.echo(turn.trouble, err=True)
    return turn


def _end(turns: Sequence[_RunExecution], *, gaps_are_listed: bool) -> None:
    """Set the exit code. A run that is not possible here is a failure only if it was requested by name."""
    unfinished = _unfinished(turns)
    impossible = [turn.trouble for turn in turns if turn.is_impossible]
    if unfinished or (impossible and not gaps_are_listed):
        raise CommandFailure("; ".join(unfinished or impossible))
    if not all(report.passed for report in _reports(turns)):
        click.get_current_context().exit(int(ExitCode.FAILED))


def _reports(turns: Sequence[_RunExecution]) -> list[Report]:
    return [turn.report for turn in turns if turn.report is not None]


def _unfinished(turns: Sequence[_RunExecution]) -> list[str]:
    return [turn.trouble for turn in turns if turn.trouble and not turn.is_impossible]


def _one(turns: Sequence[_RunExecution]) -> dict[str, object] | None:
    return next((report.as_json() for report in _reports(turns)), None)


_SUMMED = ("acknowledged", "lost", "duplicated", "reordered", "anomalies")


def _totals(rows: Sequence[Mapping[str, object]]) -> dict[str, int]:
    """The sums, and the longest gap."""
    totals = {figure: sum(int(str(row[figure])) for row in rows) for figure in _SUMMED}
    longest = max((int(str(row["longest_gap_ms"])) for row in rows), default=0)
    return {**totals, "longest_gap_ms": longest}


def _table(turns: Sequence[_RunExecution], with_seeds: bool) -> str:
    """One row per run, the totals, and how many passed."""
    reports = _reports(turns)
    possible = [turn for turn in turns if not turn.is_impossible]
    passed = sum(report.passed for report in reports)
    rows: list[dict[str, object]] = []
    for turn in turns:
        figures = {} if turn.report is None else turn.report.as_json()
        rows.append({**figures, "name": turn.name, "seed": turn.seed, "passed": turn.verdict})
    totals = _totals([report.as_json() for report in reports])
    rows.append({"name": "total", **totals, "passed": f"{passed} of {len(possible)}"})
    columns = [
        Column("name", "run"),
        *([Column("seed", "seed", "count")] if with_seeds else []),
        *(Column(figure, figure, "count") for figure in _SUMMED),
        Column("longest_gap_ms", "longest gap ms", "count"),
        Column("passed", "passed"),
    ]
    return plain_table(columns, rows)


def _summary(names: Sequence[str], turns: Sequence[_RunExecution]) -> dict[str, object]:
    reports = _reports(turns)
    rows = [report.as_json() for report in reports]
    return {
        "name": ALL if ALL in names else " ".join(names),
        "passed": all(report.passed for report in reports) and not _unfinished(turns),
        **_totals(rows),
        "unfinished": _unfinished(turns),
        "not_possible": [turn.trouble for turn in turns if turn.is_impossible],
        "runs": rows,
    }


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
        raise CommandFailure(f"{file} is not a history: {error}") from error
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
