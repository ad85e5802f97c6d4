"""What Prometheus is told of transactions: those coordinated here, and what they hold back here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

if TYPE_CHECKING:
    from kafkaesque.broker.server.context import Context

_ENDINGS: Final = ("commit", "abort", "timeout", "fenced")


def transaction_metrics(context: Context) -> Iterator[Metric]:
    states: Counter[str] = Counter()
    endings: Counter[str] = Counter(dict.fromkeys(_ENDINGS, 0))
    ending = 0
    started_ms: list[int] = []
    for host in context.transactions.hosts:
        ending += host.ending_count
        registry = host.registry
        if registry is None:
            continue
        states.update({state.title: n for state, n in registry.counts_by_state().items()})
        endings.update(registry.ended)
        oldest_ms = registry.oldest_started_ms()
        if oldest_ms is not None:
            started_ms.append(oldest_ms)
    ids = GaugeMetricFamily(
        "kafkaesque_transactional_ids", "Transactional ids coordinated here.", labels=["state"]
    )
    for name, count in states.items():
        ids.add_metric((name,), count)
    ended = CounterMetricFamily(
        "kafkaesque_transactions_ended", "Transactions that were decided here.", labels=["by"]
    )
    for name, count in endings.items():
        ended.add_metric((name,), count)
    yield from (ids, ended)
    yield _gauge(
        "kafkaesque_transactions_ending",
        "Transactions that are decided and whose markers are not all written yet.",
        ending,
    )
    now_ms = context.clock.wall_ms()
    yield _gauge(
        "kafkaesque_transaction_oldest_seconds",
        "How long the oldest transaction coordinated here is open.",
        max((now_ms - begun for begun in started_ms), default=0) / 1000,
    )
    yield _gauge(
        "kafkaesque_transactions_open",
        "Open transactions of partitions led here, each counted where it holds back readers.",
        sum(len(one.producers.transactions) for one in context.partitions if one.leads),
    )


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)
