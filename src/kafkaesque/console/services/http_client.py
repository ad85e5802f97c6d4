"""A small HTTP/1.0 client for local pages: one request per connection, bounded responses."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import urlsplit

RESPONSE_BYTES_MAX: Final = 32 << 20
SECONDS_MAX: Final = 5.0


class HttpRequestFailed(Exception):
    """No response, or one that is not valid HTTP."""


class HttpResponse(NamedTuple):
    status: int
    body: bytes


async def http_request(
    method: str,
    url: str,
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
    seconds: float = SECONDS_MAX,
) -> HttpResponse:
    """The server's response, whatever its status. Supports http only. Raises HttpRequestFailed."""
    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname:
        raise HttpRequestFailed(f"'{url}' is not an http URL")
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    lines = [f"{method} {target} HTTP/1.0", f"Host: {parts.netloc}", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    request = "\r\n".join([*lines, "", ""]).encode() + body
    try:
        async with asyncio.timeout(seconds):
            return await _exchange(parts.hostname, parts.port or 80, request)
    except (OSError, TimeoutError, ValueError, IndexError) as error:
        raise HttpRequestFailed(f"{url}: {str(error) or type(error).__name__}") from None


async def _exchange(host: str, port: int, request: bytes) -> HttpResponse:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(request)
        data = bytearray()
        while piece := await reader.read(1 << 18):
            data += piece
            if len(data) > RESPONSE_BYTES_MAX:
                raise ValueError(f"the response has more than {RESPONSE_BYTES_MAX} bytes")
        head, _, body = bytes(data).partition(b"\r\n\r\n")
        return HttpResponse(int(head.split(b" ", 2)[1]), body)
    finally:
        writer.close()
