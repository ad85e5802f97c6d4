"""The three pages, and peers that do not behave."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from kafkaesque.broker.server.http import REQUEST_BYTES_MAX, HttpListener, text


async def ask(data: bytes) -> bytes:
    listener = HttpListener({"/healthz": lambda: text(200, "ok")})
    host, port = await listener.open("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(data)
        return await reader.read()
    finally:
        writer.close()
        await listener.close()


def run(work: Coroutine[Any, Any, bytes]) -> bytes:
    return asyncio.run(work)


def test_page_is_served_with_its_length() -> None:
    answer = run(ask(b"GET /healthz?x=1 HTTP/1.1\r\nHost: x\r\n\r\n"))
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"Content-Length: 3\r\n" in answer
    assert answer.endswith(b"\r\n\r\nok\n")


@pytest.mark.parametrize(
    ("request_line", "status"),
    [(b"GET /nowhere HTTP/1.1", 404), (b"POST /healthz HTTP/1.1", 405), (b"nonsense", 400)],
)
def test_other_requests_get_a_plain_refusal(request_line: bytes, status: int) -> None:
    answer = run(ask(request_line + b"\r\n\r\n"))
    assert answer.startswith(f"HTTP/1.1 {status} ".encode())


def test_endless_header_is_cut_off() -> None:
    assert run(ask(b"GET / HTTP/1.1\r\nX: " + b"x" * REQUEST_BYTES_MAX * 2)) == b""
