"""Performs a run by name, with its control; keeps its history and returns its report."""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
from pathlib import Path
from typing import Final

from kafkaesque.lab.faults.catalog import load_run
from kafkaesque.lab.faults.checks.history import History, read_lines, write_lines
from kafkaesque.lab.faults.fault_run import FaultRunOptions, RunResult, Say, perform
from kafkaesque.lab.faults.report import FaultReport, make_report

CONTROL_SECONDS_MAX: Final = 8.0


class NotPossible(Exception):
    """This machine cannot perform the run; the message says why."""


def run_by_name(
    name: str, options: FaultRunOptions, say: Say, keep: Path | None = None
) -> tuple[FaultReport, History]:
    """Perform and check a run; histories and broker logs go to `keep` if it is given."""
    run = load_run(name)
    reason = run.impossible()
    if reason is not None:
        raise NotPossible(f"{name} cannot be run on this machine: {reason}")
    outcome = _perform_in_temporary_directory(name, options, say, keep)
    control = None
    if run.control is not None:
        say(f"the control of {name}: {', '.join(f'{k}={v}' for k, v in run.control.items())}")
        shorter = dataclasses.replace(options, seconds=min(options.seconds, CONTROL_SECONDS_MAX))
        control = make_report(
            f"{name}-control",
            shorter,
            _perform_in_temporary_directory(name, shorter, say, keep, is_control=True),
        )
    return make_report(name, options, outcome, control), outcome.history


def _perform_in_temporary_directory(
    name: str, options: FaultRunOptions, say: Say, keep: Path | None, *, is_control: bool = False
) -> RunResult:
    label = f"{name}-control" if is_control else name
    run = load_run(name)
    place = Path(tempfile.mkdtemp(prefix=f"kafkaesque-fault-{label}-"))
    try:
        outcome = perform(label, run, options, place, say, run.control if is_control else None)
    finally:
        if keep is not None:
            _keep_logs(place, keep / label)
        shutil.rmtree(place, ignore_errors=True)
    if keep is not None:
        save_history(outcome.history, keep / label / "history.jsonl")
    return outcome


def _keep_logs(place: Path, kept: Path) -> None:
    kept.mkdir(parents=True, exist_ok=True)
    for log in place.glob("*.log"):
        shutil.copyfile(log, kept / log.name)
    for log in place.glob("broker-*/broker.log"):
        shutil.copyfile(log, kept / f"{log.parent.name}.log")


def save_history(history: History, path: Path) -> None:
    with path.open("wb") as file:
        file.writelines(write_lines(history))


def load_history(path: Path) -> History:
    """Read a kept history; HistoryUnusable names the malformed line."""
    with path.open("rb") as file:
        return read_lines(file)
