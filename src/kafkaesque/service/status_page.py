"""The HTTP pages of a server process: /metrics, /status, /healthz, /readyz and the like.

A small server for GET requests, one per connection, because these pages take no input but their path:
they need no web framework, so every process has them without any extra (docs/adr/0011-status-pages.md).

`PageServer` serves any pages by path, `StatusServer` the four that the services have in common, and
`in_thread` serves pages of a process whose main thread runs no event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

logger = logging.getLogger(__name__)

REQUEST_BYTES_MAX = 8192
REQUEST_SECONDS_MAX = 5.0
TEXT = "text/plain; charset=utf-8"
JSON = "application/json"

_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed",
            500: "Internal Server Error", 503: "Service Unavailable"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Page:
    status: int
    content_type: str
    body: bytes


MakePage = Callable[[], Page | Awaitable[Page]]


def text_page(status: int, line: str) -> Page:
    return Page(status, TEXT, f"{line}\n".encode())


def json_page(content: Mapping[str, Any]) -> Page:
    # Imported late: a broker that has no JSON page starts faster without it.
    import msgspec

    return Page(200, JSON, msgspec.json.encode(content))


class PageServer:
    """Serves `pages` by exact path; each is rendered for every request."""

    __slots__ = ("_pages", "_reuse_port", "_server")

    def __init__(self, pages: Mapping[str, MakePage], *, reuse_port: bool = False) -> None:
        self._pages = pages
        self._reuse_port = reuse_port
        self._server: asyncio.Server | None = None

    async def open(self, host: str, port: int) -> tuple[str, int]:
        """Listen, and return the actual address: port 0 takes a free one."""
        self._server = await asyncio.start_server(
            self._serve, host, port, limit=REQUEST_BYTES_MAX, reuse_port=self._reuse_port or None
        )
        address = self._server.sockets[0].getsockname()
        return address[0], address[1]

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(REQUEST_SECONDS_MAX):
                request = await reader.readuntil(b"\r\n\r\n")
                writer.write(await self._answer(request))
                await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            pass  # a peer that does not finish its request gets no answer
        finally:
            writer.close()

    async def _answer(self, request: bytes) -> bytes:
        words = request.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(words) != 3:
            return _encode(text_page(400, "bad request"))
        method, target, _ = words
        if method not in ("GET", "HEAD"):
            return _encode(text_page(405, "only GET is supported here"))
        page = await self._make(target.split("?", 1)[0])
        return _encode(page, with_body=method == "GET")

    async def _make(self, path: str) -> Page:
        make = self._pages.get(path)
        if make is None:
            return text_page(404, f"there are {', '.join(sorted(self._pages))}")
        try:
            page = make()
            return page if isinstance(page, Page) else await page
        except Exception:
            logger.exception("%s could not be made", path)
            return text_page(500, "this page could not be made; the log has the reason")


def _encode(page: Page, *, with_body: bool = True) -> bytes:
    head = (
        f"HTTP/1.1 {page.status} {_REASONS[page.status]}\r\n"
        f"Content-Type: {page.content_type}\r\n"
        f"Content-Length: {len(page.body)}\r\n"
        "Cache-Control: no-store\r\nConnection: close\r\n\r\n"
    ).encode()
    return head + page.body if with_body else head


class StatusSource(Protocol):
    """The content of a service's pages, read for every request."""

    def metrics(self) -> str:
        """In Prometheus' text format."""
        ...

    def status(self) -> Mapping[str, Any]: ...

    def not_ready(self) -> str | None:
        """Why the process is not ready; None if it is."""
        ...


class StatusServer:
    """Serves /metrics, /status, /healthz and /readyz of a service."""

    def __init__(self, shown: StatusSource, *, reuse_port: bool = False) -> None:
        self._shown = shown
        pages: dict[str, MakePage] = {
            "/metrics": lambda: Page(200, TEXT, shown.metrics().encode()),
            "/status": lambda: json_page(shown.status()),
            "/healthz": lambda: text_page(200, "ok"),
            "/readyz": self._readiness,
        }
        self._server = PageServer(pages, reuse_port=reuse_port)

    async def start(self, host: str, port: int) -> str:
        """Listen, and return the actual HOST:PORT."""
        bound_host, bound_port = await self._server.open(host, port)
        return f"{bound_host}:{bound_port}"

    async def stop(self) -> None:
        await self._server.close()

    def _readiness(self) -> Page:
        why = self._shown.not_ready()
        return text_page(200, "ready") if why is None else text_page(503, why)


@contextlib.contextmanager
def in_thread(pages: Mapping[str, MakePage], host: str, port: int) -> Iterator[str]:
    """Serve `pages` from a thread of their own while the block runs; yields the actual HOST:PORT.

    Raises OSError if the address cannot be bound.
    """
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="status page", daemon=True)
    thread.start()
    server = PageServer(pages)
    try:
        opening = asyncio.run_coroutine_threadsafe(server.open(host, port), loop)
        bound_host, bound_port = opening.result()
        yield f"{bound_host}:{bound_port}"
    finally:
        asyncio.run_coroutine_threadsafe(server.close(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
