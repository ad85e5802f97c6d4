"""A console as a process: its socket, its server, its end."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator
from typing import Final

import uvicorn

from kafkaesque.console.web.config import ConsoleConfig
from kafkaesque.console.web.serving import build_application, build_state

GRACE_SECONDS: Final = 2
"""Live pages never end by themselves; after so long they are cut."""
BACKLOG: Final = 512


class _Server(uvicorn.Server):
    """Signals are the caller's business: uvicorn would raise them again when it is done."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def listen(host: str, port: int) -> socket.socket:
    """OSError if the address cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    opened = socket.socket(family, socket.SOCK_STREAM)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind((host, port))
        opened.listen(BACKLOG)
    except OSError:
        opened.close()
        raise
    return opened


async def run_console(
    config: ConsoleConfig, stopping: asyncio.Event, on_ready: Callable[[str], None]
) -> None:
    """Serve until `stopping`; `on_ready` is told the address once pages can be asked for."""
    opened = listen(config.host, config.port)
    host, port = opened.getsockname()[:2]
    application = build_application(build_state(config), config)
    server = _Server(
        uvicorn.Config(
            application,
            log_level="warning",
            access_log=False,
            timeout_graceful_shutdown=GRACE_SECONDS,
            server_header=False,
        )
    )
    serving = asyncio.create_task(server.serve(sockets=[opened]))
    waiting = asyncio.create_task(stopping.wait())
    try:
        while not server.started and not serving.done():
            await asyncio.wait((serving,), timeout=0.02)
        if server.started:
            on_ready(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
        await asyncio.wait((serving, waiting), return_when=asyncio.FIRST_COMPLETED)
    finally:
        server.should_exit = True
        waiting.cancel()
        await serving
