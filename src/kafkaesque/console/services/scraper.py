"""Scrapes /metrics of brokers and services periodically, and computes rates and percentiles."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from kafkaesque.console.rules.exposition import Exposition, quantile, read_exposition, sum_buckets
from kafkaesque.console.rules.history import MetricHistory
from kafkaesque.console.services.http_client import HttpRequestFailed, http_request

INTERVAL_S: Final = 2.0
KINDS: Final[Mapping[str, str]] = {
    "kafkaesque_gateway_": "gateway",
    "kafkaesque_tasks_": "tasks",
    "kafkaesque_task_": "tasks",
    "kafkaesque_chat_": "chat",
    "kafkaesque_source_": "source",
    "kafkaesque_pipeline_": "pipeline",
    "kafkaesque_raft_": "broker",
}
_LATENCIES: Final = (("produce", 0.5), ("produce", 0.99), ("fetch", 0.5), ("fetch", 0.99))
_LATENCY: Final = "kafkaesque_request_seconds"


@dataclass(slots=True)
class MetricsPage:
    """The last two scrapes of one URL; rates need both."""

    url: str
    kind: str = "unknown"
    at_s: float = 0.0
    now: Exposition = field(default_factory=lambda: Exposition({}))
    before_s: float = 0.0
    before: Exposition = field(default_factory=lambda: Exposition({}))
    error: str | None = None

    @property
    def is_up(self) -> bool:
        return self.error is None and self.at_s > 0

    def rate(self, name: str, **labels: str) -> float:
        """A counter's increase per second; 0 after a restart or a single scrape."""
        elapsed_s = self.at_s - self.before_s
        if self.before_s == 0 or elapsed_s <= 0:
            return 0.0
        grown = self.now.total(name, **labels) - self.before.total(name, **labels)
        return max(0.0, grown / elapsed_s)


class Scraper:
    """`pages` by URL. The set of URLs may change, so `urls` is called before each scrape."""

    def __init__(self, urls: Callable[[], Iterable[str]], history: MetricHistory) -> None:
        self.pages: dict[str, MetricsPage] = {}
        self._urls = urls
        self._history = history

    def of_kind(self, *kinds: str) -> list[MetricsPage]:
        return [page for page in self.pages.values() if page.kind in kinds]

    async def run(self) -> None:
        """Scrape until cancelled."""
        while True:
            await self.scrape()
            await asyncio.sleep(INTERVAL_S)

    async def scrape(self) -> None:
        urls = list(dict.fromkeys(self._urls()))
        self.pages = {url: self.pages.get(url) or MetricsPage(url) for url in urls}
        await asyncio.gather(*(self._read(page) for page in self.pages.values()))
        self._record()

    async def _read(self, page: MetricsPage) -> None:
        try:
            response = await http_request("GET", page.url)
        except HttpRequestFailed as error:
            page.error = str(error)
            return
        if response.status != 200:
            page.error = f"{page.url} returned HTTP status {response.status}"
            return
        page.before, page.before_s = page.now, page.at_s
        page.now = read_exposition(response.body.decode(errors="replace"))
        page.at_s, page.error = time.time(), None
        page.kind = kind_of(page.now)

    def _record(self) -> None:
        brokers = [page for page in self.of_kind("broker") if page.is_up]
        if brokers:
            self._history.add(time.time(), broker_values(brokers))
        gateways = [page for page in self.of_kind("gateway") if page.is_up]
        if gateways:
            total = sum(page.now.total("kafkaesque_gateway_connections") for page in gateways)
            self._history.add(time.time(), {"gateway/connections": total})


def kind_of(page: Exposition) -> str:
    names = page.names()
    for prefix, kind in KINDS.items():
        if any(name.startswith(prefix) for name in names):
            return kind
    return "unknown"


def broker_values(pages: list[MetricsPage]) -> dict[str, float]:
    """Throughput, connections and latencies of all brokers together."""
    values = {
        "bytes_in": sum(
            page.rate("kafkaesque_request_bytes_total", api="produce") for page in pages
        ),
        "bytes_out": sum(
            page.rate("kafkaesque_response_bytes_total", api="fetch") for page in pages
        ),
        "connections": sum(page.now.total("kafkaesque_connections") for page in pages),
    }
    for api, share in _LATENCIES:
        before = sum_buckets(page.before.buckets(_LATENCY, api=api) for page in pages)
        after = sum_buckets(page.now.buckets(_LATENCY, api=api) for page in pages)
        seconds = quantile(before, after, share)
        if not math.isnan(seconds):
            values[f"{api}_p{share * 100:.0f}_ms"] = seconds * 1000
    return values


def client_rows(pages: list[MetricsPage]) -> list[dict[str, object]]:
    """Client software by name and version, with the number of connections since the brokers started."""
    counts: dict[tuple[str, str], float] = {}
    for page in pages:
        for sample in page.now.all("kafkaesque_clients_total"):
            key = (sample.labels.get("name", ""), sample.labels.get("version", ""))
            counts[key] = counts.get(key, 0.0) + sample.value
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    return [
        {"name": name, "version": version, "connections": int(count)}
        for (name, version), count in ordered
    ]
