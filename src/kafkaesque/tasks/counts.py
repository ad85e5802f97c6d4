"""What a worker counts: for each task how many, how long, how late; and how much it holds."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from kafkaesque.model.clock import Clock
from kafkaesque.tasks.outcome import Again, Dead, Outcome

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
        self.launched = 0
        """Attempts begun, of whatever."""
        self.waiting = 0
        self.running = 0
        self.delayed = 0
        self.oldest_ms: int | None = None
        """Time of the oldest call that is read and not done."""
        self.error: str | None = None

    def begun(self, task: str, delay_ms: int) -> None:
        counts = self.tasks[task]
        counts.started += 1
        counts.delay_s.add(max(0, delay_ms) / 1000)

    def took(self, task: str, seconds: float) -> None:
        self.tasks[task].run_s.add(seconds)

    def ended(self, task: str, outcome: Outcome) -> None:
        counts = self.tasks[task if task in self.known or task in self.tasks else "unknown"]
        if isinstance(outcome, Again):
            counts.retried += 1
        elif isinstance(outcome, Dead):
            counts.dead += 1
            self.dead_reasons[outcome.reason] += 1
        else:
            counts.done += 1

    def held(self, waiting: int, running: int, delayed: int) -> None:
        self.waiting, self.running, self.delayed = waiting, running, delayed

    def oldest_age_s(self) -> float:
        """0 when nothing waits or runs."""
        if self.oldest_ms is None:
            return 0.0
        return max(0.0, (self._clock.wall_ms() - self.oldest_ms) / 1000)

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
            "waiting": self.waiting,
            "running": self.running,
            "delayed": self.delayed,
            "oldest_age_s": self.oldest_age_s(),
            "error": self.error,
        }
