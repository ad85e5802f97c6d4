"""What a running source shows over HTTP: /metrics, /healthz, /readyz, /status."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from kafkaesque.edge.http_site import StatusSite
from kafkaesque.sources.connector import SourceConnector

_PREFIX = "kafkaesque_source_"


class StatusPage(StatusSite):
    """One pump's counts."""

    def __init__(self, pump: SourceConnector, network: str) -> None:
        super().__init__()
        self._pump = pump
        self._network = network

    def metrics(self) -> str:
        lines = []
        state = self._pump.state
        counters = {
            **self._pump.counts.as_dict(),
            "connections": state.connections,
            "batches": state.batches,
        }
        for name, value in counters.items():
            lines.append(f"# TYPE {_PREFIX}{name}_total counter")
            lines.append(f'{_PREFIX}{name}_total{{network="{self._network}"}} {value}')
        lines.append(f"# TYPE {_PREFIX}connected gauge")
        lines.append(f'{_PREFIX}connected{{network="{self._network}"}} {int(state.connected)}')
        return "\n".join(lines) + "\n"

    def status(self) -> Mapping[str, Any]:
        return {**self._pump.counts.as_dict(), **dataclasses.asdict(self._pump.state)}

    def not_ready(self) -> str | None:
        state = self._pump.state
        return None if state.connected else state.error or "starting"
