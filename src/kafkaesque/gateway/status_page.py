"""What a running gateway shows over HTTP: /metrics, /healthz, /readyz, /status."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from kafkaesque.edge.http_site import StatusSite


class Shown(Protocol):
    """A gateway, as far as the page looks."""

    def not_ready(self) -> str | None:
        """Why no new client should be sent here; None if they may come."""
        ...

    def metrics(self) -> str: ...

    def status(self) -> Mapping[str, Any]: ...


class StatusPage(StatusSite):
    """One gateway's state."""

    def __init__(self, shown: Shown) -> None:
        # Shared, since a process that takes over listens before the other has gone.
        super().__init__(reuse_port=True)
        self._shown = shown

    def metrics(self) -> str:
        return self._shown.metrics()

    def status(self) -> Mapping[str, Any]:
        return self._shown.status()

    def not_ready(self) -> str | None:
        return self._shown.not_ready()
