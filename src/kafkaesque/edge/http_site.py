"""What a server process shows over HTTP: a site that starts and stops, and the page that all have.

The page is /metrics, /status, /healthz and /readyz; what stands in it, each service says itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import msgspec
from aiohttp import web


class HttpSite:
    """Serves `application` between `start` and `stop`."""

    def __init__(self, application: web.Application, *, reuse_port: bool | None = None) -> None:
        self._runner = web.AppRunner(
            application, handle_signals=False, access_log=None, shutdown_timeout=0.5
        )
        self._reuse_port = reuse_port

    async def start(self, host: str, port: int) -> str:
        """The address that is listened on; port 0 takes a free one."""
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port, reuse_port=self._reuse_port).start()
        bound_host, bound_port = self._runner.addresses[0][:2]
        return f"{bound_host}:{bound_port}"

    async def stop(self) -> None:
        await self._runner.cleanup()


class StatusSite(HttpSite, ABC):
    """The page of one process. All three are asked at each request."""

    def __init__(self, *, reuse_port: bool | None = None) -> None:
        application = web.Application()
        application.add_routes(
            [
                web.get("/metrics", self._metrics),
                web.get("/status", self._status),
                web.get("/healthz", self._healthy),
                web.get("/readyz", self._ready),
            ]
        )
        super().__init__(application, reuse_port=reuse_port)

    @abstractmethod
    def metrics(self) -> str:
        """In Prometheus' text format."""

    @abstractmethod
    def status(self) -> Mapping[str, Any]: ...

    @abstractmethod
    def not_ready(self) -> str | None:
        """Why the process is not ready; None when it is."""

    async def _metrics(self, _request: web.Request) -> web.Response:
        return web.Response(text=self.metrics())

    async def _status(self, _request: web.Request) -> web.Response:
        body = msgspec.json.encode(self.status())
        return web.Response(body=body, content_type="application/json")

    async def _healthy(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _ready(self, _request: web.Request) -> web.Response:
        why = self.not_ready()
        if why is None:
            return web.Response(text="ready\n")
        return web.Response(status=503, text=f"{why}\n")
