"""What a process of the tasks shows over HTTP: /metrics, /healthz, /readyz, /status."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from aiohttp import web


class StatusPage:
    """Serves until `stop`. `metrics` and `status` are asked at each request."""

    def __init__(
        self,
        metrics: Callable[[], str],
        status: Callable[[], Mapping[str, Any]],
        trouble: Callable[[], str | None],
    ) -> None:
        self._metrics_text = metrics
        self._status_facts = status
        self._trouble = trouble
        """Why the process is not ready; None when it is."""
        application = web.Application()
        application.add_routes(
            [
                web.get("/metrics", self._metrics),
                web.get("/status", self._status),
                web.get("/healthz", self._healthy),
                web.get("/readyz", self._ready),
            ]
        )
        self._runner = web.AppRunner(
            application, handle_signals=False, access_log=None, shutdown_timeout=0.5
        )

    async def start(self, host: str, port: int) -> str:
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port).start()
        bound_host, bound_port = self._runner.addresses[0][:2]
        return f"{bound_host}:{bound_port}"

    async def stop(self) -> None:
        await self._runner.cleanup()

    async def _metrics(self, _request: web.Request) -> web.Response:
        return web.Response(text=self._metrics_text())

    async def _status(self, _request: web.Request) -> web.Response:
        body = msgspec.json.encode(self._status_facts())
        return web.Response(body=body, content_type="application/json")

    async def _healthy(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _ready(self, _request: web.Request) -> web.Response:
        trouble = self._trouble()
        if trouble is None:
            return web.Response(text="ready\n")
        return web.Response(status=503, text=f"{trouble}\n")
