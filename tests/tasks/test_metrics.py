from __future__ import annotations

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from kafkaesque.client.memory import MemoryLog
from kafkaesque.client.ports import Received
from kafkaesque.events import tasks as protocol
from kafkaesque.model.ids import Offset, PartitionIndex, TimestampMs
from kafkaesque.tasks.config import TasksConfig
from kafkaesque.tasks.metrics import WorkerMetrics
from kafkaesque.tasks.rules.in_flight import InFlightTracker
from kafkaesque.tasks.rules.outcome import CallFailure, Dead, DeadReason, Done, RetryAfter
from kafkaesque.tasks.rules.scheduler import Scheduler, SchedulerLimits
from kafkaesque.tasks.tester import VirtualClock
from kafkaesque.tasks.timers.election import Alone
from kafkaesque.tasks.timers.service import TimerService


def test_prometheus_reads_the_metrics_of_a_worker() -> None:
    clock = VirtualClock()
    metrics = WorkerMetrics("shop", ["greet"], clock)
    for delay_ms in (3, 700):
        metrics.attempt_started("greet", delay_ms)
        metrics.attempt_took("greet", 0.004)
    failure = CallFailure("E", "x")
    for outcome in (Done(), RetryAfter(1.0, failure), Dead(DeadReason.EXHAUSTED, failure)):
        metrics.attempt_ended("greet", outcome)
    metrics.attempt_ended("undeclared", Dead(DeadReason.UNKNOWN_TASK, failure))
    metrics.dead_records["shop"] = 4
    metrics.dead_letters["shop"] = {"greet": 2}
    metrics.set_held(in_flight_at(clock.wall_ms() - 2500), 7)
    found = {
        (
            sample.name.removeprefix("kafkaesque_tasks_"),
            *sorted(sample.labels.values()),
        ): sample.value
        for family in text_string_to_metric_families(metrics.prometheus())
        for sample in family.samples
    }
    assert found["started_total", "greet", "shop"] == 2
    assert found["done_total", "greet", "shop"] == 1
    assert found["retried_total", "greet", "shop"] == 1
    assert found["dead_total", "greet", "shop"] == 1
    assert found["dead_total", "shop", "unknown"] == 1
    assert found["dead_reasons_total", "exhausted", "shop"] == 1
    assert found["start_delay_seconds_count", "greet", "shop"] == 2
    assert found["start_delay_seconds_bucket", "0.005", "greet", "shop"] == 1
    assert found["start_delay_seconds_bucket", "+Inf", "greet", "shop"] == 2
    assert found["oldest_age_seconds", "greet", "shop"] == 2.5
    assert found["oldest_age_seconds", "shop", "unknown"] == 2.5
    assert found["waiting", "greet", "shop"] == 1
    assert found["running", "greet", "shop"] == 1
    assert found["delayed", "greet", "shop"] == 1
    assert found["delayed", "shop", "unknown"] == 0
    assert found["left_in_log", "shop"] == 7
    assert found["dead_records", "shop", "shop"] == 4
    assert found["dead_letters", "greet", "shop", "shop"] == 2


def in_flight_at(sent_ms: int) -> InFlightTracker:
    """A call of `greet` that runs, one that it blocks, one that is delayed; one of an undeclared task."""
    scheduler = Scheduler(SchedulerLimits(), {"greet"})
    due = ((protocol.DUE, str(sent_ms + 4000).encode()),)
    for offset, (topic, key, task, headers) in enumerate(
        [
            ("tasks.shop", b"ann", "greet", ()),
            ("tasks.shop", b"ann", "greet", ()),
            ("tasks.shop.retry.5s", b"bob", "greet", due),
            ("tasks.shop", b"eve", "undeclared", ()),
        ]
    ):
        message = protocol.TaskMessage("c", task, msgspec.Raw(b"{}"), TimestampMs(sent_ms))
        data = protocol.encode_message(message)
        place = (topic, PartitionIndex(0), Offset(offset))
        scheduler.admit(Received(*place, key, data, headers, TimestampMs(sent_ms)), sent_ms)
    scheduler.take()
    return scheduler.in_flight


def test_timers_are_counted_by_their_task() -> None:
    service = TimerService(MemoryLog(), Alone(), None, VirtualClock(), TasksConfig())
    service.metrics.tasks["shop/remind"].fired = 3
    service.metrics.tasks["shop/remind"].cancelled = 1
    service.metrics.tasks["shop/remind"].late_s.add(0.02)
    service.metrics.set_pending(0, {"shop/remind": 5, "other/other": 1})
    service.metrics.set_pending(1, {"shop/remind": 2})
    found = {
        (sample.name, sample.labels.get("queue"), sample.labels.get("task")): sample.value
        for family in text_string_to_metric_families(service.prometheus())
        for sample in family.samples
        if "le" not in sample.labels
    }
    prefix = "kafkaesque_tasks_timers_"
    assert found[f"{prefix}fired_total", "shop", "remind"] == 3
    assert found[f"{prefix}cancelled_total", "shop", "remind"] == 1
    assert found[f"{prefix}pending", "shop", "remind"] == 7
    assert found[f"{prefix}pending", "other", "other"] == 1
    assert found[f"{prefix}late_seconds_count", "shop", "remind"] == 1
