"""The console's own /metrics: group lag in records and seconds, topic rates, page latencies."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from kafkaesque.console.documents.state import ConsoleState
from kafkaesque.console.rules.lag import GroupStatus

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
BUCKETS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)


class PageTimings:
    """Histograms of the server time of each page."""

    def __init__(self) -> None:
        self.counts: dict[str, list[int]] = {}
        self.sums_s: dict[str, float] = {}

    def observe(self, page: str, seconds: float) -> None:
        counts = self.counts.setdefault(page, [0] * (len(BUCKETS_S) + 1))
        counts[bisect_left(BUCKETS_S, seconds)] += 1
        self.sums_s[page] = self.sums_s.get(page, 0.0) + seconds


class ConsoleCollector(Collector):
    def __init__(self, state: ConsoleState, timings: PageTimings, streams: int) -> None:
        self._state = state
        self._timings = timings
        self._streams = streams

    def collect(self) -> Iterator[Metric]:
        yield from self._cluster()
        yield from self._groups()
        yield from self._topics()
        yield from self._console()

    def _cluster(self) -> Iterator[Metric]:
        view = self._state.sampler.view
        topics = view.topics.values()
        values = {
            "up": (
                "Whether the cluster answers (1 or 0).",
                view.error is None and view.sampled_s > 0,
            ),
            "brokers_up": ("Brokers that are up.", sum(b.is_up for b in view.brokers.values())),
            "brokers_known": ("Brokers that are up or were seen before.", len(view.brokers)),
            "topics": ("Topics.", len(view.topics)),
            "partitions": ("Partitions.", view.partition_count),
            "partitions_leaderless": (
                "Partitions without a leader.",
                sum(t.leaderless for t in topics),
            ),
            "partitions_under_replicated": (
                "Partitions with a replica that is not in sync.",
                sum(t.under_replicated for t in topics),
            ),
        }
        for name, (text, value) in values.items():
            yield GaugeMetricFamily(f"kafkaesque_cluster_{name}", text, value=float(value))
        if view.quorum is not None:
            yield GaugeMetricFamily("kafkaesque_cluster_controller_term",
                                    "Term of the controller's Raft group.",
                                    value=view.quorum.epoch)  # fmt: skip

    def _groups(self) -> Iterator[Metric]:
        labels = ["group"]
        lag = GaugeMetricFamily("kafkaesque_group_lag_records", "Unread records.", labels=labels)
        lag_s = GaugeMetricFamily("kafkaesque_group_lag_seconds",
                                  "Age of the oldest unread record.", labels=labels)  # fmt: skip
        members = GaugeMetricFamily("kafkaesque_group_members_count", "Members.", labels=labels)
        status = GaugeMetricFamily("kafkaesque_group_status", "1 for the group's current status, 0 for all others.",
                                   labels=["group", "status"])  # fmt: skip
        for group in self._state.sampler.view.groups.values():
            lag.add_metric((group.name,), group.lag)
            lag_s.add_metric((group.name,), group.time_lag.seconds)
            if group.members is not None:
                members.add_metric((group.name,), group.members)
            for item in GroupStatus:
                status.add_metric((group.name, item.label), float(item is group.status))
        yield from (lag, lag_s, members, status)

    def _topics(self) -> Iterator[Metric]:
        labels = ["topic"]
        rate = GaugeMetricFamily("kafkaesque_topic_records_per_second", "Records appended per second.",
                                 labels=labels)  # fmt: skip
        size = GaugeMetricFamily("kafkaesque_topic_size_bytes", "Size on the leaders' disks.",
                                 labels=labels)  # fmt: skip
        for topic in self._state.sampler.view.topics.values():
            if topic.rate is not None:
                rate.add_metric((topic.name,), topic.rate)
            if topic.size_bytes is not None:
                size.add_metric((topic.name,), topic.size_bytes)
        yield from (rate, size)

    def _console(self) -> Iterator[Metric]:
        sampler = self._state.sampler
        yield CounterMetricFamily(
            "kafkaesque_console_looks", "Samples of the cluster.", sampler.sample_count
        )
        gauges = {
            "look_seconds": ("Duration of the last sample of the cluster.", sampler.sample_seconds),
            "live_streams": ("Open pages with live updates.", self._streams),
            "scans": ("Running searches.", self._state.scanner.running),
            "history_series": ("Series kept in memory.", len(sampler.history)),
        }
        for name, (text, value) in gauges.items():
            yield GaugeMetricFamily(f"kafkaesque_console_{name}", text, value=float(value))
        pages = HistogramMetricFamily("kafkaesque_console_page_seconds",
                                      "Server time of a page.", labels=["page"])  # fmt: skip
        bounds = [*map(str, BUCKETS_S), "+Inf"]
        for page, counts in self._timings.counts.items():
            buckets = list(zip(bounds, accumulate(counts), strict=True))
            pages.add_metric([page], buckets, sum_value=self._timings.sums_s[page])
        yield pages


def exposition(state: ConsoleState, timings: PageTimings, streams: int) -> bytes:
    registry = CollectorRegistry()
    registry.register(ConsoleCollector(state, timings, streams))
    return generate_latest(registry)
