"""Counts as Prometheus reads them. Pure: text from numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from kafkaesque.tasks.counts import BUCKETS_S, Counts, Histogram, TaskCounts
from kafkaesque.tasks.timers.service import TimerService

_PREFIX = "kafkaesque_tasks_"


def worker_metrics(counts: Counts) -> str:
    return "\n".join(_worker_lines(counts)) + "\n"


def _worker_lines(counts: Counts) -> Iterator[str]:
    tasks = dict(counts.tasks)
    for figure in ("started", "done", "retried", "dead"):
        yield f"# TYPE {_PREFIX}{figure}_total counter"
        for name, one in tasks.items():
            yield _line(f"{figure}_total", {"app": counts.app, "task": name}, getattr(one, figure))
    yield f"# TYPE {_PREFIX}dead_reasons_total counter"
    for reason, count in dict(counts.dead_reasons).items():
        yield _line("dead_reasons_total", {"app": counts.app, "reason": reason}, count)
    yield f"# TYPE {_PREFIX}dead_records gauge"
    for queue, depth in dict(counts.dead_records).items():
        yield _line("dead_records", {"app": counts.app, "queue": queue}, depth)
    yield f"# TYPE {_PREFIX}dead_letters gauge"
    for queue, letters in dict(counts.dead_letters).items():
        for task in {**dict.fromkeys(counts.known, 0), **letters}:
            labels = {"app": counts.app, "queue": queue, "task": task}
            yield _line("dead_letters", labels, letters.get(task, 0))
    yield from _histograms(counts.app, tasks, "run_seconds", "run_s")
    yield from _histograms(counts.app, tasks, "start_delay_seconds", "delay_s")
    by_task: dict[str, Mapping[str, float]] = {
        "waiting": counts.waiting(),
        "running": counts.running(),
        "delayed": counts.delayed(),
        "oldest_age_seconds": counts.oldest_age_s(),
    }
    for name, values in by_task.items():
        yield f"# TYPE {_PREFIX}{name} gauge"
        for task, value in values.items():
            yield _line(name, {"app": counts.app, "task": task}, value)
    yield from gauge_lines({"left_in_log": counts.left}, {"app": counts.app})


def timer_metrics(service: TimerService) -> str:
    return "\n".join(_timer_lines(service)) + "\n"


def _timer_lines(service: TimerService) -> Iterator[str]:
    counts = service.counts
    tasks = {name: (_timer_labels(name), one) for name, one in dict(counts.tasks).items()}
    for figure in ("fired", "cancelled"):
        yield f"# TYPE {_PREFIX}timers_{figure}_total counter"
        for labels, one in tasks.values():
            yield _line(f"timers_{figure}_total", labels, getattr(one, figure))
    yield from counter_lines({"timers_refused": counts.refused}, {})
    yield f"# TYPE {_PREFIX}timers_pending gauge"
    for name, count in counts.pending_by_task().items():
        yield _line("timers_pending", _timer_labels(name), count)
    gauges = {
        "timers_partitions_owned": len(service.owned),
        "timers_partitions_caught_up": len(service.caught_up),
    }
    yield from gauge_lines(gauges, {})
    yield f"# TYPE {_PREFIX}timers_late_seconds histogram"
    for labels, one in tasks.values():
        yield from _histogram("timers_late_seconds", labels, one.late_s)


def _timer_labels(name: str) -> dict[str, str]:
    queue, _, task = name.partition("/")
    return {"queue": queue, "task": task}


def gauge_lines(gauges: Mapping[str, float], labels: Mapping[str, str]) -> Iterator[str]:
    for name, value in gauges.items():
        yield f"# TYPE {_PREFIX}{name} gauge"
        yield _line(name, labels, value)


def counter_lines(counters: Mapping[str, float], labels: Mapping[str, str]) -> Iterator[str]:
    for name, value in counters.items():
        yield f"# TYPE {_PREFIX}{name}_total counter"
        yield _line(f"{name}_total", labels, value)


def _histograms(
    app: str, tasks: Mapping[str, TaskCounts], name: str, attribute: str
) -> Iterable[str]:
    yield f"# TYPE {_PREFIX}{name} histogram"
    for task, counts in tasks.items():
        yield from _histogram(name, {"app": app, "task": task}, getattr(counts, attribute))


def _histogram(name: str, labels: Mapping[str, str], histogram: Histogram) -> Iterator[str]:
    total = 0
    for bound, count in zip((*BUCKETS_S, "+Inf"), histogram.buckets, strict=True):
        total += count
        yield _line(f"{name}_bucket", {**labels, "le": str(bound)}, total)
    yield _line(f"{name}_sum", labels, round(histogram.sum_s, 6))
    yield _line(f"{name}_count", labels, total)


def _line(name: str, labels: Mapping[str, str], value: float) -> str:
    pairs = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
    return f"{_PREFIX}{name}{{{pairs}}} {value}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
