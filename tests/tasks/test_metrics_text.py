from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from kafkaesque.tasks.counts import Counts
from kafkaesque.tasks.metrics_text import worker_metrics
from kafkaesque.tasks.outcome import Again, Dead, Done, Failure
from kafkaesque.tasks.tester import VirtualClock


def test_what_a_worker_counts_is_what_prometheus_reads() -> None:
    clock = VirtualClock()
    counts = Counts("shop", clock)
    counts.known = frozenset({"greet"})
    for delay_ms in (3, 700):
        counts.begun("greet", delay_ms)
        counts.took("greet", 0.004)
    failure = Failure("E", "x")
    for outcome in (Done(), Again(1.0, failure), Dead("exhausted", failure)):
        counts.ended("greet", outcome)
    counts.ended("somebody-elses", Dead("unknown-task", failure))
    counts.oldest_ms = clock.wall_ms() - 2500
    counts.dead_records["shop"] = 4
    found = {
        (
            sample.name.removeprefix("kafkaesque_tasks_"),
            *sorted(sample.labels.values()),
        ): sample.value
        for family in text_string_to_metric_families(worker_metrics(counts))
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
    assert found["oldest_age_seconds", "shop"] == 2.5
    assert found["dead_records", "shop", "shop"] == 4
