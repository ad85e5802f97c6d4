"""What a worker counts: for each task how many, how long, how late; and how much it holds."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from kafkaesque.model.clock import Clock
from kafkaesque.tasks.rules.holdings import UNKNOWN, Holdings, State
from kafkaesque.tasks.rules.outcome import Again, Dead, Outcome

BUCKETS_S = (0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
             300.0)  # fmt: skip


class Histogram:
    """Counts by upper bound, as Prometheus wants them."""

    def __init__(self) -> None:
        self.buckets = [0] * (len(BUCKETS_S) + 1)
        self.sum_s = 0.0

    def add(self, seconds: float) -> None:
        self.sum_s += seconds
        for index, bound_s in enumerate(BUCKETS_S):
            if seconds <= bound_s:
                self.buckets[index] += 1
                return
        self.buckets[-1] += 1

    @property
    def count(self) -> int:
        return sum(self.buckets)


@dataclass(slots=True)
class TaskCounts:
    """Of one task."""

    started: int = 0
    done: int = 0
    retried: int = 0
    dead: int = 0
    run_s: Histogram = field(default_factory=Histogram)
    delay_s: Histogram = field(default_factory=Histogram)
    """From the record's time to the start of the call."""


class Counts:
    """Of one worker. Names of tasks that are not declared count together, so that no sender can make
    this grow."""

    def __init__(self, app: str, clock: Clock) -> None:
        self.app = app
        self._clock = clock
        self.tasks: defaultdict[str, TaskCounts] = defaultdict(TaskCounts)
        self.known: frozenset[str] = frozenset()
        self.dead_reasons: defaultdict[str, int] = defaultdict(int)
        self.dead_records: dict[str, int] = {}
        """By queue: records of its dead letters, those of letters that have ended included."""
        self.dead_letters: dict[str, dict[str, int]] = {}
        """By queue and task: letters that wait to be redriven or dropped."""
        self.launched = 0
        """Attempts begun, of whatever."""
        self.holdings = Holdings()
        self.left = 0
        """Calls that are left in the log behind a call of their key."""
        self.error: str | None = None

    def begun(self, task: str, delay_ms: int) -> None:
        counts = self.tasks[task]
        counts.started += 1
        counts.delay_s.add(max(0, delay_ms) / 1000)

    def took(self, task: str, seconds: float) -> None:
        self.tasks[task].run_s.add(seconds)

    def ended(self, task: str, outcome: Outcome) -> None:
        counts = self.tasks[task if task in self.known or task in self.tasks else UNKNOWN]
        if isinstance(outcome, Again):
            counts.retried += 1
        elif isinstance(outcome, Dead):
            counts.dead += 1
            self.dead_reasons[outcome.reason] += 1
        else:
            counts.done += 1

    def held(self, holdings: Holdings, left: int) -> None:
        self.holdings, self.left = holdings, left

    def waiting(self) -> dict[str, int]:
        return self._by_task(State.READY, State.BEHIND)

    def running(self) -> dict[str, int]:
        return self._by_task(State.RUNNING)

    def delayed(self) -> dict[str, int]:
        return self._by_task(State.DELAYED, State.HELD)

    def _by_task(self, *states: State) -> dict[str, int]:
        return {**dict.fromkeys(self.known, 0), **self.holdings.by_task(*states)}

    def oldest_age_s(self) -> dict[str, float]:
        """By task: 0 when nothing of it waits or runs."""
        now_ms, oldest_ms = self._clock.wall_ms(), self.holdings.oldest_ms()
        return {
            task: max(0.0, (now_ms - oldest_ms.get(task, now_ms)) / 1000)
            for task in self._by_task()
        }

    def as_dict(self) -> dict[str, object]:
        figures = ("started", "done", "retried", "dead")
        return {
            "app": self.app,
            "tasks": {
                name: {figure: getattr(one, figure) for figure in figures}
                for name, one in dict(self.tasks).items()
            },
            "dead_reasons": dict(self.dead_reasons),
            "dead_records": dict(self.dead_records),
            "waiting": sum(self.waiting().values()) + self.left,
            "running": sum(self.running().values()),
            "delayed": sum(self.delayed().values()),
            "oldest_age_s": max(self.oldest_age_s().values(), default=0.0),
            "error": self.error,
        }
