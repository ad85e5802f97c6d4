"""`kafkaesque sim`: simulates clusters under faults, for many seeds, or for one with a trace."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import click

import kafkaesque
from kafkaesque.cli.failures import ExitCode, usage
from kafkaesque.cli.options import examples
from kafkaesque.lab.sim.campaign import keep_seed, summarize, summarize_planted
from kafkaesque.lab.sim.planted import PLANTED
from kafkaesque.lab.sim.planted.bug import Found, Planted, find
from kafkaesque.lab.sim.runner import SeedResult, replay_command, run_seeds, show_seed

PROGRESS_EVERY_S = 10.0
FAILURES_FILE = ".kafkaesque-sim-failures.txt"
BUGS = {bug.name: bug for bug in PLANTED}


@click.command(
    epilog=examples(
        "kafkaesque sim --seeds 1000 --jobs 2",
        "kafkaesque sim --seed 4711 --trace",
        "kafkaesque sim --seeds 20000 --jobs 2 --keep tests/lab/sim/regression_seeds.txt",
        "kafkaesque sim --planted",
        "kafkaesque sim --planted --bug journal_is_not_synced",
    )
)
@click.option(
    "--seeds",
    "seed_count",
    default=200,
    show_default=True,
    type=click.IntRange(min=1),
    help="Number of seeds.",
)
@click.option(
    "--first-seed",
    default=0,
    show_default=True,
    type=click.IntRange(min=0),
    help="First of --seeds.",
)
@click.option("--seed", "one_seed", type=click.IntRange(min=0), help="Run only this seed.")
@click.option("--trace", "with_trace", is_flag=True, help="With --seed: print the trace.")
@click.option(
    "--jobs", default=1, show_default=True, type=click.IntRange(1, 64), help="Processes to use."
)
@click.option("--planted", is_flag=True, help="Plant known bugs and report how soon each is found.")
@click.option(
    "--bug",
    "bugs",
    multiple=True,
    type=click.Choice(list(BUGS)),
    metavar="NAME",
    help="With --planted: only this bug; may be repeated.",
)
@click.option(
    "--keep",
    default=FAILURES_FILE,
    show_default=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="Append seeds that fail to this file.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object as the last line.")
def sim(
    seed_count: int,
    first_seed: int,
    one_seed: int | None,
    with_trace: bool,
    jobs: int,
    planted: bool,
    bugs: tuple[str, ...],
    keep: Path,
    as_json: bool,
) -> None:
    """Simulate clusters from seeds: real Raft, logs and tables, simulated time, network and disks.

    Each seed is a cluster of three or five brokers with its clients and its own mix of faults. Then the
    faults stop, and the cluster must recover. Exits with 1 if an invariant was violated, and appends the
    seed to a file; the seed alone reproduces the failure.
    """
    if bugs and not planted:
        raise usage("--bug needs --planted.")
    if planted and kafkaesque.BUILD.is_compiled:
        _run_planted_from_sources(bugs, as_json)
    elif planted:
        _run_planted([BUGS[name] for name in bugs] or PLANTED, as_json)
    elif one_seed is not None:
        _run_one(one_seed, with_trace, keep, as_json)
    else:
        _run_many(range(first_seed, first_seed + seed_count), jobs, keep, as_json)


def _run_one(seed: int, with_trace: bool, keep: Path, as_json: bool) -> None:
    outcome = show_seed(seed, click.echo if with_trace else None)
    _report_violation(outcome, keep, as_json)
    if as_json:
        click.echo(json.dumps(summarize([outcome], outcome.seconds, 1) | {"trace": outcome.digest}))
    else:
        click.echo(f"trace {outcome.digest}, {outcome.events} events in {outcome.seconds:.2f} s")
    _set_exit_code(outcome.violation is None)


def _run_many(seeds: range, jobs: int, keep: Path, as_json: bool) -> None:
    started = shown = time.monotonic()
    outcomes: list[SeedResult] = []
    for outcome in run_seeds(seeds, jobs):
        outcomes.append(outcome)
        _report_violation(outcome, keep, as_json)
        if time.monotonic() - shown > PROGRESS_EVERY_S:
            shown = time.monotonic()
            click.echo(f"{len(outcomes)} of {len(seeds)} seeds", err=True)
    summary = summarize(outcomes, time.monotonic() - started, jobs)
    if as_json:
        click.echo(json.dumps(summary))
    else:
        click.echo(
            f"{summary['seeds']} seeds, {summary['violations']} violations, "
            f"{summary['seeds_per_hour']} seeds an hour on {jobs} core(s): {summary['committed']} "
            f"entries committed, {summary['elections']} elections"
        )
    _set_exit_code(summary["violations"] == 0)


def _report_violation(outcome: SeedResult, keep: Path, as_json: bool) -> None:
    """Print a failed seed with the command that reproduces it, and keep it."""
    if outcome.violation is None:
        return
    click.echo(f"seed {outcome.seed}: {outcome.violation}", err=as_json)
    click.echo(f"  again: {replay_command(outcome.seed)}", err=as_json)
    has_been_kept = not keep_seed(keep, outcome.seed, outcome.violation)
    click.echo(f"  {'already' if has_been_kept else 'kept'} in {keep}", err=as_json)


def _run_planted_from_sources(bugs: Sequence[str], as_json: bool) -> None:
    """A bug is planted by replacing a function, which compiled code would not notice."""
    program = [sys.executable, "-m", "kafkaesque.cli.main", "sim", "--planted"]
    options = [*(f"--bug={name}" for name in bugs), *(["--json"] if as_json else [])]
    environment = {**os.environ, "KAFKAESQUE_PURE": "modules"}
    run = subprocess.run([*program, *options], env=environment, check=False)
    click.get_current_context().exit(run.returncode)


def _run_planted(bugs: Sequence[Planted], as_json: bool) -> None:
    results: list[Found] = []
    for bug in bugs:
        one = find(bug)
        results.append(one)
        how = (
            f"seed {one.seeds} ({one.seconds:.1f} s): {one.violation}"
            if one.violation
            else "NOT FOUND"
        )
        click.echo(f"{bug.name:<50} {how}", err=as_json)
    figures = summarize_planted(results)
    if as_json:
        click.echo(json.dumps(figures))
    else:
        text = f"{figures['found']} of {figures['planted']} found"
        if figures["found"]:
            text += f", median time {figures['median_seconds_to_find']:.2f} s"
            text += f", median seed {figures['median_seeds_to_find']:g}"
        click.echo(text)
    _set_exit_code(not figures["missed"])


def _set_exit_code(passed: bool) -> None:
    if not passed:
        click.get_current_context().exit(int(ExitCode.FAILED))
