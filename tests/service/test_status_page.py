"""The server of status pages: pages, wrong requests, hostile peers, and threads."""

from __future__ import annotations

import asyncio
import socket
import urllib.request
from collections.abc import Coroutine
from typing import Any, NoReturn

import pytest

from kafkaesque.service.status_page import (
    REQUEST_BYTES_MAX,
    PageServer,
    StatusServer,
    in_thread,
    text_page,
)


def broken() -> NoReturn:
    raise ValueError("no figures")


async def ask(data: bytes) -> bytes:
    listener = PageServer({"/healthz": lambda: text_page(200, "ok"), "/broken": broken})
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


def test_head_has_no_body() -> None:
    answer = run(ask(b"HEAD /healthz HTTP/1.1\r\n\r\n"))
    assert b"Content-Length: 3\r\n" in answer
    assert answer.endswith(b"\r\n\r\n")


def test_page_that_fails_is_a_500_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    answer = run(ask(b"GET /broken HTTP/1.1\r\n\r\n"))
    assert answer.startswith(b"HTTP/1.1 500 ")
    assert "/broken could not be made" in caplog.text


class Shown:
    """A service that is not ready."""

    def metrics(self) -> str:
        return "calls_total 1\n"

    def status(self) -> dict[str, Any]:
        return {"calls": 1, "partitions": (1, 2)}

    def not_ready(self) -> str | None:
        return "starting"


def test_service_has_four_pages() -> None:
    async def story() -> None:
        server = StatusServer(Shown())
        host, port = (await server.start("127.0.0.1", 0)).split(":")

        async def get(path: str) -> tuple[str, str, str]:
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(f"GET {path} HTTP/1.1\r\n\r\n".encode())
            head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
            writer.close()
            status, kind, *_ = head.splitlines()
            return status.split()[1], kind, body

        text = "Content-Type: text/plain; charset=utf-8"
        assert await get("/metrics") == ("200", text, "calls_total 1\n")
        assert await get("/healthz") == ("200", text, "ok\n")
        assert await get("/readyz") == ("503", text, "starting\n")
        assert await get("/status") == (
            "200",
            "Content-Type: application/json",
            '{"calls":1,"partitions":[1,2]}',
        )
        await server.stop()

    asyncio.run(story())


def test_pages_are_served_from_a_thread() -> None:
    pages = {"/healthz": lambda: text_page(200, "ok")}
    with (
        in_thread(pages, "127.0.0.1", 0) as address,
        urllib.request.urlopen(f"http://{address}/healthz", timeout=60) as answer,
    ):
        assert answer.read() == b"ok\n"
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"http://{address}/healthz", timeout=60)


def test_address_in_use_is_an_error_of_the_caller() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(OSError, match="in use"),
        in_thread({}, *taken.getsockname()),
    ):
        pass
