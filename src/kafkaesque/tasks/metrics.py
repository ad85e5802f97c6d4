"""The metrics of a worker: per task how many, how long, how late; how much it holds. As Prometheus text."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from kafkaesque.model.clock import Clock
from kafkaesque.tasks.rules.in_flight import UNDECLARED, InFlightTracker, RecordState
from kafkaesque.tasks.rules.outcome import Dead, Outcome, RetryAfter

PREFIX = "kafkaesque_tasks_"
BUCKETS_S = (0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
             300.0)  # fmt: skip


class Histogram:
    """Observations in seconds, counted by upper bound."""

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
class TaskMetrics:
    """The attempts of one task."""

    started: int = 0
    done: int = 0
    retried: int = 0
    dead: int = 0
    run_s: Histogram = field(default_factory=Histogram)
    delay_s: Histogram = field(default_factory=Histogram)
    """From the record's timestamp to the start of the call."""


class WorkerMetrics:
    """The metrics of one worker. Undeclared tasks count together, so that no sender can make this grow."""

    def __init__(self, app: str, declared_tasks: Iterable[str], clock: Clock) -> None:
        self.app = app
        self._declared_tasks = frozenset(declared_tasks)
        self._clock = clock
        self.tasks: defaultdict[str, TaskMetrics] = defaultdict(TaskMetrics)
        self.dead_reasons: defaultdict[str, int] = defaultdict(int)
        self.dead_records: dict[str, int] = {}
        """By queue: records of its dead-letter topic, those of ended letters included."""
        self.dead_letters: dict[str, dict[str, int]] = {}
        """By queue and task: letters that wait to be redriven or dropped."""
        self.launched = 0
        """Attempts started, including records that are not calls."""
        self._in_flight = InFlightTracker()
        self.deferred = 0
        """Calls of busy keys that were left in the log."""
        self.error: str | None = None

    def attempt_started(self, task: str, delay_ms: int) -> None:
        metrics = self.tasks[task]
        metrics.started += 1
        metrics.delay_s.add(max(0, delay_ms) / 1000)

    def attempt_took(self, task: str, seconds: float) -> None:
        self.tasks[task].run_s.add(seconds)

    def attempt_ended(self, task: str, outcome: Outcome) -> None:
        is_known = task in self._declared_tasks or task in self.tasks
        metrics = self.tasks[task if is_known else UNDECLARED]
        if isinstance(outcome, RetryAfter):
            metrics.retried += 1
        elif isinstance(outcome, Dead):
            metrics.dead += 1
            self.dead_reasons[outcome.reason] += 1
        else:
            metrics.done += 1

    def set_held(self, in_flight: InFlightTracker, deferred: int) -> None:
        self._in_flight, self.deferred = in_flight, deferred

    def waiting(self) -> dict[str, int]:
        return self._by_task(RecordState.READY, RecordState.BLOCKED)

    def running(self) -> dict[str, int]:
        return self._by_task(RecordState.RUNNING)

    def delayed(self) -> dict[str, int]:
        return self._by_task(RecordState.DELAYED, RecordState.BACKOFF)

    def _by_task(self, *states: RecordState) -> dict[str, int]:
        return {**dict.fromkeys(self._declared_tasks, 0), **self._in_flight.by_task(*states)}

    def oldest_age_s(self) -> dict[str, float]:
        """By task: the age of its oldest unfinished call, 0 if there is none."""
        now_ms, oldest_ms = self._clock.wall_ms(), self._in_flight.oldest_ms()
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
            "waiting": sum(self.waiting().values()) + self.deferred,
            "running": sum(self.running().values()),
            "delayed": sum(self.delayed().values()),
            "oldest_age_s": max(self.oldest_age_s().values(), default=0.0),
            "error": self.error,
        }

    def prometheus(self) -> str:
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        app, tasks = self.app, dict(self.tasks)
        for figure in ("started", "done", "retried", "dead"):
            yield type_line(f"{figure}_total", "counter")
            for name, one in tasks.items():
                labels = {"app": app, "task": name}
                yield sample_line(f"{figure}_total", labels, getattr(one, figure))
        yield type_line("dead_reasons_total", "counter")
        for reason, count in dict(self.dead_reasons).items():
            yield sample_line("dead_reasons_total", {"app": app, "reason": reason}, count)
        yield type_line("dead_records", "gauge")
        for queue, records in dict(self.dead_records).items():
            yield sample_line("dead_records", {"app": app, "queue": queue}, records)
        yield type_line("dead_letters", "gauge")
        for queue, letters in dict(self.dead_letters).items():
            for task in {**dict.fromkeys(self._declared_tasks, 0), **letters}:
                labels = {"app": app, "queue": queue, "task": task}
                yield sample_line("dead_letters", labels, letters.get(task, 0))
        for metric, attribute in (("run_seconds", "run_s"), ("start_delay_seconds", "delay_s")):
            yield type_line(metric, "histogram")
            for name, one in tasks.items():
                labels = {"app": app, "task": name}
                yield from histogram_lines(metric, labels, getattr(one, attribute))
        by_task: dict[str, Mapping[str, float]] = {
            "waiting": self.waiting(),
            "running": self.running(),
            "delayed": self.delayed(),
            "oldest_age_seconds": self.oldest_age_s(),
        }
        for metric, values in by_task.items():
            yield type_line(metric, "gauge")
            for task, value in values.items():
                yield sample_line(metric, {"app": app, "task": task}, value)
        yield type_line("left_in_log", "gauge")
        yield sample_line("left_in_log", {"app": app}, self.deferred)


# -- the Prometheus text format ------------------------------------------------------------------------


def type_line(name: str, kind: str) -> str:
    return f"# TYPE {PREFIX}{name} {kind}"


def sample_line(name: str, labels: Mapping[str, str], value: float) -> str:
    pairs = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
    return f"{PREFIX}{name}{{{pairs}}} {value}"


def histogram_lines(name: str, labels: Mapping[str, str], histogram: Histogram) -> Iterator[str]:
    total = 0
    for bound, count in zip((*BUCKETS_S, "+Inf"), histogram.buckets, strict=True):
        total += count
        yield sample_line(f"{name}_bucket", {**labels, "le": str(bound)}, total)
    yield sample_line(f"{name}_sum", labels, round(histogram.sum_s, 6))
    yield sample_line(f"{name}_count", labels, total)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
