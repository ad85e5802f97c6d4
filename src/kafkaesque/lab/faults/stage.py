"""One execution of a fault run: target and load up, faults while it lasts, final reads, the report.

The order matters: everything is healed before the senders drain, so that an unknown outcome is the
fault's doing and not the end's; readers end after that; the final readers come last.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kafkaesque.lab.faults.chance import seeded
from kafkaesque.lab.faults.checks.checker import Verdict, check_history
from kafkaesque.lab.faults.checks.figures import Fault
from kafkaesque.lab.faults.checks.history import Damage, History, Key, Terms
from kafkaesque.lab.faults.stalls import StallMeter
from kafkaesque.lab.faults.target import SingleBroker, Target, TargetUnwell
from kafkaesque.lab.faults.workload import Workload, WorkloadSettings
from kafkaesque.testing.broker_process import BrokerNotReady

Say = Callable[[str], None]

_FIRST_RECORD_S: Final = 15.0
_TRACEBACK: Final = "Traceback (most recent call last)"
_QUIET_S: Final = 1.0
"""Load without a fault at the beginning and at the end."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What the user chose."""

    seconds: float = 20.0
    records_per_s: int = 1000
    seed: int = 1
    rounds: int | None = None
    """How many faults there are, however long that takes; None leaves it to `seconds`."""
    amount: int | None = None
    """How much work there is in a run that counts it; None leaves it to the run."""


class Stage:
    """What a run sees while it injects its faults."""

    def __init__(self, target: Target, workload: Workload, options: RunOptions, say: Say) -> None:
        self.target = target
        self.workload = workload
        self.random = seeded(options.seed)
        self.notes: dict[str, int | float | str] = {}
        """Figures of the run's own, for its report."""
        self.faults: list[Fault] = []
        self.damaged: list[Damage] = []
        self._say = say
        self._ends_at = time.monotonic() + options.seconds
        self._rounds = options.rounds
        self.rounds_done = 0

    def fault(self, text: str, keys: Iterable[Key] | None = None) -> None:
        """A fault begins now. Whoever sends to `keys`, or to any key, feels it."""
        hit = frozenset(self.workload.partitions.keys if keys is None else keys)
        self.faults.append(Fault(self.workload.recorder.now_us(), hit))
        self.say(text)

    def say(self, text: str) -> None:
        seconds = self.workload.recorder.now_us() / 1e6
        self._say(
            f"{seconds:7.2f} s  {self.workload.recorder.acknowledged:>7} acknowledged  {text}"
        )

    def another_round(self, seconds_min: float, seconds_max: float | None = None) -> bool:
        """Let the load run for a while, and say whether to break something after that. The first
        time always."""
        seconds = self.random.uniform(seconds_min, seconds_max or seconds_min)
        if self._rounds is not None:
            if self.rounds_done >= self._rounds:
                return False
        elif self.rounds_done and (left := self._ends_at - time.monotonic()) <= seconds:
            time.sleep(max(0.0, left))
            return False
        time.sleep(seconds)
        self.rounds_done += 1
        return True

    def count(self, name: str, amount: int = 1) -> None:
        """Add to a figure of the run's own."""
        self.notes[name] = int(self.notes.get(name, 0)) + amount

    def highest(self, name: str, value: int) -> None:
        """Keep the highest of a figure of the run's own."""
        self.notes[name] = max(value, int(self.notes.get(name, 0)))


class FaultRun(ABC):
    """Base of the runs: each file of `runs/` has one, named `Run`."""

    purpose: str = ""
    """What it does, in one line."""
    promise: str = ""
    """What must hold, in one line."""
    settings: Mapping[str, object] = {}
    """Of the broker."""
    control: Mapping[str, object] | None = None
    """Broker settings under which this fault must lose records: shows that the run can fail."""
    rounds: int | None = None
    """How many faults the run has if the user says nothing and asks for this run alone."""
    brokers: int = 1
    """How many there are in it."""
    dense_offsets: bool = True
    """There are no transactions in it, whose ends are offsets that no reader sees."""

    def workload(self, options: RunOptions) -> WorkloadSettings:
        return WorkloadSettings(records_per_s=options.records_per_s, seed=options.seed)

    def impossible(self) -> str | None:
        """Why this machine does not permit the run; None if it does."""
        return None

    def open_target(
        self, directory: Path, settings: Mapping[str, object]
    ) -> AbstractContextManager[Target]:
        return closing(SingleBroker(directory, settings))

    def begin(self, stage: Stage) -> None:  # noqa: B027 - most have nothing to do then
        """The load runs, and nothing is broken yet."""

    @abstractmethod
    def inject(self, stage: Stage) -> None:
        """Break things as long as there is another round."""

    def complaints(self, stage: Stage) -> list[str]:
        """What the run itself found wrong, beyond the history."""
        return []


@dataclass(frozen=True, slots=True)
class Outcome:
    """All that one execution yields."""

    history: History
    verdict: Verdict
    faults: list[Fault]
    notes: dict[str, int | float | str] = field(default_factory=dict)
    complaints: list[str] = field(default_factory=list)


def perform(
    name: str,
    run: FaultRun,
    options: RunOptions,
    directory: Path,
    say: Say,
    settings: Mapping[str, object] | None = None,
) -> Outcome:
    """Execute `run` once in `directory`, with broker settings beyond its own."""
    with run.open_target(directory, {**run.settings, **(settings or {})}) as target:
        target.heal()
        workload = Workload(target.bootstrap_servers, run.workload(options), say)
        workload.start()
        workload.wait_for_first(_FIRST_RECORD_S)
        time.sleep(_QUIET_S)
        stage = Stage(target, workload, options, say)
        run.begin(stage)
        stalls = StallMeter()
        stalls.start()
        complaints = _break(run, stage)
        stage.notes["own_stall_ms_max"] = stalls.end()
        time.sleep(_QUIET_S)
        stage.say("waiting for what is under way")
        workload.stop(is_served=not complaints)
        complete = False
        if not complaints:
            stage.say("reading everything from the beginning")
            complete = workload.read_everything()
        operations = workload.operations()
        terms = Terms(
            final_reads_complete=complete,
            dense_offsets=run.dense_offsets,
            damaged=tuple(stage.damaged),
        )
        history = History(terms, operations, name)
        verdict = check_history(history)
        if complete:
            complaints += run.complaints(stage)
        else:
            complaints.append("the final reads did not reach the end of every partition")
        complaints += _tracebacks(target)
        return Outcome(history, verdict, stage.faults, stage.notes, complaints)


def _break(run: FaultRun, stage: Stage) -> list[str]:
    """Inject and heal; a broker that does not start again is the finding, not a failure of ours."""
    try:
        run.inject(stage)
        stage.target.heal()
    except BrokerNotReady as error:
        stage.say("a broker did not start again")
        return [f"a broker did not start again: {str(error).strip().splitlines()[-1]}"]
    except TargetUnwell as error:
        stage.say("it does not get well again")
        return [f"it does not get well again: {error}"]
    return []


def _tracebacks(target: Target) -> list[str]:
    """No fault is an excuse for an exception that nobody expected."""
    found = []
    for node in target.nodes:
        lines = target.log_text(node).splitlines()
        starts = [number for number, line in enumerate(lines) if line.startswith(_TRACEBACK)]
        if starts:
            ends = (n for n in range(starts[0] + 1, len(lines)) if not lines[n].startswith(" "))
            last = lines[next(ends, len(lines) - 1)]
            found.append(f"node {node} logged {len(starts)} traceback(s), the first: {last}")
    return found
