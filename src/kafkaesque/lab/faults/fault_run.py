"""The base class of fault runs, and the execution of one.

`perform` starts the system under test and the load, injects faults, heals, reads everything back and
checks the history. The order matters: every fault is healed before the senders drain, so that a record
with an unknown outcome is due to a fault and not to the end of the run. Readers stop after that; the
final readers come last.
"""

from __future__ import annotations

import random
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Final

from kafkaesque.lab.faults.checks.checker import HistoryVerdict, check_history
from kafkaesque.lab.faults.checks.figures import Fault
from kafkaesque.lab.faults.checks.history import DestroyedRange, History, Key, Terms
from kafkaesque.lab.faults.workload import Workload, WorkloadSettings
from kafkaesque.lab.harness.cluster import BrokerSettings, SingleBroker, Target, TargetFailed
from kafkaesque.testing.broker_process import BrokerNotReady

Say = Callable[[str], None]
"""Prints a line of progress."""

_FIRST_RECORD_S: Final = 15.0
_TRACEBACK: Final = "Traceback (most recent call last)"
_QUIET_S: Final = 1.0
"""Load without a fault at the beginning and at the end."""
_STALL_SAMPLE_S: Final = 0.005


@dataclass(frozen=True, slots=True)
class FaultRunOptions:
    """The options of the command line."""

    seconds: float = 20.0
    records_per_s: int = 1000
    seed: int = 1
    rounds: int | None = None
    """The number of faults to inject, however long that takes; None: as many as fit into `seconds`."""
    amount: int | None = None
    """The amount of work, for runs that do a fixed amount; None: the default of the run."""


class FaultRunContext:
    """Everything a run needs while it injects its faults."""

    def __init__(
        self, target: Target, workload: Workload, options: FaultRunOptions, say: Say
    ) -> None:
        self.target = target
        self.workload = workload
        self.random = random.Random(options.seed)
        self.notes: dict[str, int | float | str] = {}
        """The run's own figures, for the report."""
        self.faults: list[Fault] = []
        self.damaged: list[DestroyedRange] = []
        self._say = say
        self._ends_at = time.monotonic() + options.seconds
        self._rounds = options.rounds
        self.rounds_done = 0

    def fault(self, text: str, keys: Iterable[Key] | None = None) -> None:
        """Record and print a fault that begins now. It affects senders to `keys`; None: to all."""
        hit = frozenset(self.workload.partitions.keys if keys is None else keys)
        self.faults.append(Fault(self.workload.recorder.now_us(), hit))
        self.say(text)

    def say(self, text: str) -> None:
        seconds = self.workload.recorder.now_us() / 1e6
        self._say(
            f"{seconds:7.2f} s  {self.workload.recorder.acknowledged:>7} acknowledged  {text}"
        )

    def another_round(self, seconds_min: float, seconds_max: float | None = None) -> bool:
        """Let the load run for a while; returns whether to inject another fault after that.

        The first call always returns True.
        """
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
        """Add to one of the run's figures."""
        self.notes[name] = int(self.notes.get(name, 0)) + amount

    def highest(self, name: str, value: int) -> None:
        """Keep the highest value of one of the run's figures."""
        self.notes[name] = max(value, int(self.notes.get(name, 0)))

    def highest_ms_since(self, name: str, started_at: float) -> None:
        """Keep the longest time, in milliseconds, since a moment of time.monotonic()."""
        self.highest(name, int((time.monotonic() - started_at) * 1000))


class FaultRun(ABC):
    """One kind of fault, injected again and again. `catalog.py` lists the runs."""

    purpose: str = ""
    """The faults, in one line."""
    promise: str = ""
    """The guarantee that the run checks, in one line."""
    settings: ClassVar[BrokerSettings] = {}
    """Broker settings."""
    control: ClassVar[BrokerSettings | None] = None
    """Broker settings under which this fault must lose records: proof that the run can fail."""
    rounds: int | None = None
    """The number of faults if this run is started alone and without `--rounds`."""
    brokers: int = 1
    dense_offsets: bool = True
    """False if the log has transactions: their markers take offsets that no reader sees."""

    def workload(self, options: FaultRunOptions) -> WorkloadSettings:
        return WorkloadSettings(records_per_s=options.records_per_s, seed=options.seed)

    def impossible(self) -> str | None:
        """The reason why this machine cannot perform the run; None if it can."""
        return None

    def open_target(
        self, directory: Path, settings: BrokerSettings
    ) -> AbstractContextManager[Target]:
        return closing(SingleBroker(directory, settings))

    def begin(self, context: FaultRunContext) -> None:  # noqa: B027 - most runs have nothing to do here
        """Called once the load runs, before the first fault."""

    @abstractmethod
    def inject(self, context: FaultRunContext) -> None:
        """Inject faults as long as `context.another_round` returns True."""

    def complaints(self, context: FaultRunContext) -> list[str]:
        """Failures that the run itself found, beyond the check of the history."""
        return []


class ShuffleBag:
    """Draws kinds of fault from a shuffled list, and shuffles again when it is empty.

    Unlike independent draws, every `len(kinds)` draws contain each kind once.
    """

    def __init__(self, kinds: Iterable[str], rng: random.Random) -> None:
        self._kinds = list(kinds)
        self._random = rng
        self._remaining: list[str] = []

    def draw(self) -> str:
        if not self._remaining:
            self._remaining = self._random.sample(self._kinds, len(self._kinds))
        return self._remaining.pop()


class StallMeter(threading.Thread):
    """Measures how long this process itself was stalled: such a gap is not the brokers' fault."""

    def __init__(self) -> None:
        super().__init__(name="stall-meter", daemon=True)
        self._ended = threading.Event()
        self.longest_ms = 0

    def run(self) -> None:
        due = time.monotonic() + _STALL_SAMPLE_S
        while not self._ended.wait(_STALL_SAMPLE_S):
            now = time.monotonic()
            self.longest_ms = max(self.longest_ms, int((now - due) * 1000))
            due = now + _STALL_SAMPLE_S

    def end(self) -> int:
        self._ended.set()
        self.join()
        return self.longest_ms


@dataclass(frozen=True, slots=True)
class RunResult:
    """The result of one execution."""

    history: History
    verdict: HistoryVerdict
    faults: list[Fault]
    notes: dict[str, int | float | str] = field(default_factory=dict)
    complaints: list[str] = field(default_factory=list)


def perform(
    name: str,
    run: FaultRun,
    options: FaultRunOptions,
    directory: Path,
    say: Say,
    settings: BrokerSettings | None = None,
) -> RunResult:
    """Execute `run` once in `directory`; `settings` are added to the run's own broker settings."""
    with run.open_target(directory, {**run.settings, **(settings or {})}) as target:
        target.heal()
        workload = Workload(target.bootstrap_servers, run.workload(options), say)
        workload.start()
        workload.wait_for_first(_FIRST_RECORD_S)
        time.sleep(_QUIET_S)
        context = FaultRunContext(target, workload, options, say)
        run.begin(context)
        stalls = StallMeter()
        stalls.start()
        complaints = _inject_and_heal(run, context)
        context.notes["own_stall_ms_max"] = stalls.end()
        time.sleep(_QUIET_S)
        context.say("waiting for records in flight")
        workload.stop(is_served=not complaints)
        complete = False
        if not complaints:
            context.say("reading everything from the beginning")
            complete = workload.read_everything()
        terms = Terms(
            final_reads_complete=complete,
            dense_offsets=run.dense_offsets,
            damaged=tuple(context.damaged),
        )
        history = History(terms, workload.operations(), name)
        verdict = check_history(history)
        if complete:
            complaints += run.complaints(context)
        else:
            complaints.append("the final reads did not reach the end of every partition")
        complaints += _tracebacks(target)
        return RunResult(history, verdict, context.faults, context.notes, complaints)


def _inject_and_heal(run: FaultRun, context: FaultRunContext) -> list[str]:
    """A broker that does not start again is a finding, not a failure of the run."""
    try:
        run.inject(context)
        context.target.heal()
    except BrokerNotReady as error:
        context.say("a broker did not start again")
        return [f"a broker did not start again: {str(error).strip().splitlines()[-1]}"]
    except TargetFailed as error:
        context.say("the target does not recover")
        return [f"the target does not recover: {error}"]
    return []


def _tracebacks(target: Target) -> list[str]:
    """Complaints about unhandled exceptions in broker logs: no fault excuses one."""
    found = []
    for node in target.nodes:
        lines = target.log_text(node).splitlines()
        starts = [number for number, line in enumerate(lines) if line.startswith(_TRACEBACK)]
        if starts:
            ends = (n for n in range(starts[0] + 1, len(lines)) if not lines[n].startswith(" "))
            last = lines[next(ends, len(lines) - 1)]
            found.append(f"node {node} logged {len(starts)} traceback(s), the first: {last}")
    return found
