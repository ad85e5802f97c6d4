"""What a running gateway shows over HTTP: /metrics, /healthz, /readyz, /status."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec
from aiohttp import web


class Shown(Protocol):
    """A gateway, as far as the page looks."""

    def not_ready(self) -> str | None:
        """Why no new client should be sent here; None if they may come."""
        ...

    def metrics(self) -> str: ...

    def status(self) -> Mapping[str, Any]: ...


class StatusPage:
    """Serves one gateway's state until `stop`."""

    def __init__(self, shown: Shown) -> None:
        self._shown = shown
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
        # Shared, since a process that takes over listens before the other has gone.
        await web.TCPSite(self._runner, host, port, reuse_port=True).start()
        bound_host, bound_port = self._runner.addresses[0][:2]
        return f"{bound_host}:{bound_port}"

    async def stop(self) -> None:
        await self._runner.cleanup()

    async def _metrics(self, _request: web.Request) -> web.Response:
        return web.Response(text=self._shown.metrics())

    async def _status(self, _request: web.Request) -> web.Response:
        body = msgspec.json.encode(self._shown.status())
        return web.Response(body=body, content_type="application/json")

    async def _healthy(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _ready(self, _request: web.Request) -> web.Response:
        why = self._shown.not_ready()
        if why is None:
            return web.Response(text="ready\n")
        return web.Response(status=503, text=f"{why}\n")
