"""What a running back end shows over HTTP: /metrics, /healthz, /readyz, /status."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import msgspec
from aiohttp import web

from kafkaesque.chat.backend import Backend
from kafkaesque.chat.translator import Translator

_PREFIX = "kafkaesque_chat_"
_GAUGES = ("restore_ms", "transaction_ms_max")
_COUNTERS = (
    "passes",
    "batches",
    "snapshots",
    "restored",
    "predecessors_ended",
    "decide_ms_sum",
    "transaction_ms_sum",
)


class StatusPage:
    """Serves one back end's counts until `stop`."""

    def __init__(self, backend: Backend | Translator) -> None:
        self._backend = backend
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
        return web.Response(text="\n".join(self._lines()) + "\n")

    def _lines(self) -> Iterator[str]:
        counts = dataclasses.asdict(self._backend.counts)
        ops = counts.pop("ops")
        state = dataclasses.asdict(self._backend.state)
        for name, value in (counts | {name: state[name] for name in _COUNTERS}).items():
            yield f"# TYPE {_PREFIX}{name}_total counter"
            yield f"{_PREFIX}{name}_total {value}"
        yield f"# TYPE {_PREFIX}requests_total counter"
        for name, value in sorted(ops.items()):
            yield f'{_PREFIX}requests_total{{request="{name}"}} {value}'
        gauges = {name: state[name] for name in _GAUGES} | self._backend.tables.sizes
        gauges |= {"partitions": len(state["partitions"]), "ready": int(state["ready"])}
        for name, value in gauges.items():
            yield f"# TYPE {_PREFIX}{name} gauge"
            yield f"{_PREFIX}{name} {value}"

    async def _status(self, _request: web.Request) -> web.Response:
        body = {
            "name": self._backend.name,
            "group": self._backend.group,
            **dataclasses.asdict(self._backend.counts),
            **dataclasses.asdict(self._backend.state),
            **self._backend.tables.sizes,
        }
        return web.Response(body=msgspec.json.encode(body), content_type="application/json")

    async def _healthy(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _ready(self, _request: web.Request) -> web.Response:
        if self._backend.state.ready:
            return web.Response(text="ready\n")
        return web.Response(status=503, text=f"{self._backend.state.error or 'starting'}\n")
