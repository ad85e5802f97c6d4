"""Three pages for machines: /metrics, /healthz, /readyz. GET only, one answer a connection.

Deliberately no web framework here: the broker's core stays small, and these pages take no input but
their path. The console is another process with another listener.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

logger = logging.getLogger(__name__)

REQUEST_BYTES_MAX = 8192
REQUEST_SECONDS_MAX = 5.0


@dataclass(frozen=True, slots=True)
class Page:
    status: int
    content_type: str
    body: bytes


_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed",
            503: "Service Unavailable"}  # fmt: skip


Make = Callable[[], Page | Awaitable[Page]]


class HttpListener:
    """Serves `pages` by path."""

    __slots__ = ("_pages", "_server")

    def __init__(self, pages: Mapping[str, Make]) -> None:
        self._pages = pages
        self._server: asyncio.Server | None = None

    async def open(self, host: str, port: int) -> tuple[str, int]:
        self._server = await asyncio.start_server(self._serve, host, port, limit=REQUEST_BYTES_MAX)
        address = self._server.sockets[0].getsockname()
        return address[0], address[1]

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(REQUEST_SECONDS_MAX):
                head = await reader.readuntil(b"\r\n\r\n")
                page = await self._answer(head)
                writer.write(_head(page) + page.body)
                await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            pass  # a peer that does not finish its request gets no answer
        finally:
            writer.close()

    async def _answer(self, head: bytes) -> Page:
        words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(words) != 3:
            return text(400, "bad request")
        method, target, _ = words
        if method not in ("GET", "HEAD"):
            return text(405, "only GET is answered here")
        make = self._pages.get(target.split("?", 1)[0])
        if make is None:
            return text(404, f"there are {', '.join(sorted(self._pages))}")
        page = make()
        return page if isinstance(page, Page) else await page


def text(status: int, line: str) -> Page:
    return Page(status, "text/plain; charset=utf-8", f"{line}\n".encode())


def _head(page: Page) -> bytes:
    return (
        f"HTTP/1.1 {page.status} {_REASONS[page.status]}\r\n"
        f"Content-Type: {page.content_type}\r\n"
        f"Content-Length: {len(page.body)}\r\n"
        "Cache-Control: no-store\r\nConnection: close\r\n\r\n"
    ).encode()
