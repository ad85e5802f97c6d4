"""What a process of the tasks shows over HTTP: /metrics, /healthz, /readyz, /status."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kafkaesque.edge.http_site import StatusSite


class StatusPage(StatusSite):
    """What the three say; `trouble` is why the process is not ready, None when it is."""

    def __init__(
        self,
        metrics: Callable[[], str],
        status: Callable[[], Mapping[str, Any]],
        trouble: Callable[[], str | None],
    ) -> None:
        super().__init__()
        self._metrics_text = metrics
        self._status_facts = status
        self._trouble = trouble

    def metrics(self) -> str:
        return self._metrics_text()

    def status(self) -> Mapping[str, Any]:
        return self._status_facts()

    def not_ready(self) -> str | None:
        return self._trouble()
