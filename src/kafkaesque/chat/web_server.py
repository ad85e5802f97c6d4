"""Serves the web chat page: a few static files, with a Content-Security-Policy that allows no others.

The page connects to the gateways by WebSocket; this server only delivers the page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files
from urllib.parse import urlsplit

import msgspec
from aiohttp import web

_TYPES: Mapping[str, str] = {
    "html": "text/html",
    "css": "text/css",
    "js": "text/javascript",
    "svg": "image/svg+xml",
}
_PAGE_FILES = ("index.html", "chat.css", "chat.js", "view.js", "icon.svg")


def policy(gateways: Sequence[str]) -> str:
    """The Content-Security-Policy: own files, and WebSockets to the given gateways only."""
    hosts = " ".join(f"{urlsplit(one).scheme}://{urlsplit(one).netloc}" for one in gateways)
    return (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        f"connect-src 'self' {hosts}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


class WebServer:
    """Serves between `start` and `stop`. `gateways` are ws:// or wss:// URLs."""

    def __init__(self, gateways: Sequence[str]) -> None:
        self._settings = msgspec.json.encode({"gateways": list(gateways)})
        self._headers = {
            "Content-Security-Policy": policy(gateways),
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Opener-Policy": "same-origin",
            "Cache-Control": "no-cache",
        }
        page = files("kafkaesque.chat") / "web"
        self._files = {name: (page / name).read_bytes() for name in _PAGE_FILES}
        self._files["client.js"] = (files("kafkaesque.edge") / "web" / "client.js").read_bytes()
        application = web.Application()
        application.router.add_get("/{name:.*}", self._serve)
        self._runner = web.AppRunner(
            application, handle_signals=False, access_log=None, shutdown_timeout=0.5
        )

    async def start(self, host: str, port: int) -> str:
        """Listen, and return the actual HOST:PORT; port 0 takes a free one."""
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port).start()
        bound_host, bound_port = self._runner.addresses[0][:2]
        return f"{bound_host}:{bound_port}"

    async def stop(self) -> None:
        await self._runner.cleanup()

    async def _serve(self, request: web.Request) -> web.Response:
        """Serves a file from memory by its exact name, so that no path can be traversed."""
        name = request.match_info["name"] or "index.html"
        if name in ("healthz", "readyz"):
            return web.Response(text="ok\n", headers=self._headers)
        if name == "settings.json":
            return self._answer(self._settings, "application/json")
        body = self._files.get(name)
        if body is None:
            return web.Response(status=404, text="not found\n", headers=self._headers)
        return self._answer(body, _TYPES[name.rpartition(".")[2]])

    def _answer(self, body: bytes, content_type: str) -> web.Response:
        return web.Response(
            body=body, content_type=content_type, charset="utf-8", headers=self._headers
        )
