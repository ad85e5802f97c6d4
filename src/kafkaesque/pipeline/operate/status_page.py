"""The HTTP pages of running queries: the feed that a console reads, metrics, health.

    GET /status            {"queries": [status of each query of this process]}
    GET /progress/NAME     {"query": NAME, "batches": [the last batches, oldest first]}
    GET /metrics           Prometheus
    GET /healthz, /readyz  200; /readyz once every query runs, 503 before that and after a failure

A status is the content of `DATA/queries/NAME/status.json`, a batch a line of its `progress.jsonl`:
without a port the files can be read instead.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from prometheus_client import generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from kafkaesque.pipeline.operate.progress import Metrics
from kafkaesque.pipeline.operate.status import read_status
from kafkaesque.pipeline.paths import PipelineDirectory
from kafkaesque.service.status_page import MakePage, Page, json_page, text_page

BATCHES_SHOWN_MAX: Final = 200


class QueryPages:
    """The pages of one process that runs the queries `names`."""

    def __init__(self, data: PipelineDirectory, names: Sequence[str], metrics: Metrics) -> None:
        self._data = data
        self._names = tuple(names)
        self._metrics = metrics

    def pages(self) -> Mapping[str, MakePage]:
        """By path."""
        return {
            "/metrics": self._metrics_page,
            "/healthz": lambda: text_page(200, "ok"),
            "/readyz": self._readiness,
            "/status": lambda: json_page({"queries": self._statuses()}),
            **{f"/progress/{name}": partial(self._progress, name) for name in self._names},
        }

    def _metrics_page(self) -> Page:
        return Page(200, CONTENT_TYPE_LATEST, generate_latest(self._metrics.registry))

    def _readiness(self) -> Page:
        waiting = [item["query"] for item in self._statuses() if item["state"] != "running"]
        if waiting:
            return text_page(503, f"not running: {', '.join(waiting)}")
        return text_page(200, "ready")

    def _progress(self, name: str) -> Page:
        return json_page({"query": name, "batches": self._feed(name)})

    def _statuses(self) -> list[dict[str, Any]]:
        return [
            {"state": "starting", **read_status(self._data.status(name)), "query": name}
            for name in self._names
        ]

    def _feed(self, name: str) -> list[dict[str, Any]]:
        path = self._data.feed(name)
        if not path.exists():
            return []
        lines = path.read_text().splitlines()[-BATCHES_SHOWN_MAX:]
        return [json.loads(line) for line in lines]
