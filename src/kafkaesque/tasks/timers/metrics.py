"""The metrics of a process that keeps timers."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from kafkaesque.tasks.metrics import Histogram, histogram_lines, sample_line, type_line


@dataclass(slots=True)
class TaskTimers:
    """The timers of one task."""

    fired: int = 0
    cancelled: int = 0
    late_s: Histogram = field(default_factory=Histogram)


@dataclass(slots=True)
class TimerMetrics:
    """All partitions of one process. Tasks are named QUEUE/NAME."""

    tasks: defaultdict[str, TaskTimers] = field(default_factory=lambda: defaultdict(TaskTimers))
    refused: int = 0
    pending: dict[int, int] = field(default_factory=dict)
    """By partition."""
    pending_tasks: dict[int, dict[str, int]] = field(default_factory=dict)
    """By partition and task."""

    @property
    def fired(self) -> int:
        return sum(one.fired for one in list(self.tasks.values()))

    @property
    def cancelled(self) -> int:
        return sum(one.cancelled for one in list(self.tasks.values()))

    def set_pending(self, partition: int, tasks: Mapping[str, int]) -> None:
        self.pending[partition] = sum(tasks.values())
        self.pending_tasks[partition] = dict(tasks)

    def forget_pending(self, partition: int) -> None:
        self.pending.pop(partition, None)
        self.pending_tasks.pop(partition, None)

    def pending_by_task(self) -> dict[str, int]:
        total: Counter[str] = Counter()
        for tasks in list(self.pending_tasks.values()):
            total.update(tasks)
        return total

    def prometheus(self, partitions_owned: int, partitions_caught_up: int) -> str:
        return "\n".join(self._lines(partitions_owned, partitions_caught_up)) + "\n"

    def _lines(self, partitions_owned: int, partitions_caught_up: int) -> Iterator[str]:
        tasks = {name: (_labels(name), one) for name, one in dict(self.tasks).items()}
        for figure in ("fired", "cancelled"):
            yield type_line(f"timers_{figure}_total", "counter")
            for labels, one in tasks.values():
                yield sample_line(f"timers_{figure}_total", labels, getattr(one, figure))
        yield type_line("timers_refused_total", "counter")
        yield sample_line("timers_refused_total", {}, self.refused)
        yield type_line("timers_pending", "gauge")
        for name, count in self.pending_by_task().items():
            yield sample_line("timers_pending", _labels(name), count)
        yield type_line("timers_partitions_owned", "gauge")
        yield sample_line("timers_partitions_owned", {}, partitions_owned)
        yield type_line("timers_partitions_caught_up", "gauge")
        yield sample_line("timers_partitions_caught_up", {}, partitions_caught_up)
        yield type_line("timers_late_seconds", "histogram")
        for labels, one in tasks.values():
            yield from histogram_lines("timers_late_seconds", labels, one.late_s)


def _labels(name: str) -> dict[str, str]:
    queue, _, task = name.partition("/")
    return {"queue": queue, "task": task}
