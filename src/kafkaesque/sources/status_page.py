"""The status page of a running source."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from kafkaesque.sources.connector import SourceConnector

_PREFIX = "kafkaesque_source_"


class SourceStatus:
    """Metrics and status of one connector. See `service.status_page.StatusSource`."""

    def __init__(self, connector: SourceConnector, network: str) -> None:
        self._connector = connector
        self._network = network

    def metrics(self) -> str:
        lines = []
        state = self._connector.state
        counters = {
            **self._connector.counts.as_dict(),
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
        return {**self._connector.counts.as_dict(), **dataclasses.asdict(self._connector.state)}

    def not_ready(self) -> str | None:
        state = self._connector.state
        return None if state.connected else state.error or "starting"
