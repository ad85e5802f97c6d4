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
    yield from _histograms(counts.app, tasks, "run_seconds", "run_s")
    yield from _histograms(counts.app, tasks, "start_delay_seconds", "delay_s")
    gauges = {
        "waiting": counts.waiting,
        "running": counts.running,
        "delayed": counts.delayed,
        "oldest_age_seconds": counts.oldest_age_s(),
    }
    yield from gauge_lines(gauges, {"app": counts.app})


def timer_metrics(service: TimerService) -> str:
    counts = service.counts
    lines = [
        *counter_lines(
            {
                "timers_fired": counts.fired,
                "timers_cancelled": counts.cancelled,
                "timers_refused": counts.refused,
            },
            {},
        ),
        *gauge_lines(
            {
                "timers_pending": sum(counts.pending.values()),
                "timers_partitions_owned": len(service.owned),
                "timers_partitions_caught_up": len(service.caught_up),
            },
            {},
        ),
        f"# TYPE {_PREFIX}timers_late_seconds histogram",
        *_histogram("timers_late_seconds", {}, counts.late_s),
    ]
    return "\n".join(lines) + "\n"


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
