"""What a running source shows over HTTP: /metrics, /healthz, /readyz, /status."""

from __future__ import annotations

import dataclasses

import msgspec
from aiohttp import web

from kafkaesque.sources.pump import Pump

_PREFIX = "kafkaesque_source_"


class StatusPage:
    """Serves one pump's counts until `stop`."""

    def __init__(self, pump: Pump, network: str) -> None:
        self._pump = pump
        self._network = network
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
        return web.Response(text="\n".join(lines) + "\n")

    async def _status(self, _request: web.Request) -> web.Response:
        body = {**self._pump.counts.as_dict(), **dataclasses.asdict(self._pump.state)}
        return web.Response(body=msgspec.json.encode(body), content_type="application/json")

    async def _healthy(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _ready(self, _request: web.Request) -> web.Response:
        if self._pump.state.connected:
            return web.Response(text="ready\n")
        return web.Response(status=503, text=f"{self._pump.state.error or 'starting'}\n")
