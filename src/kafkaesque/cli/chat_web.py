"""The process behind `kafkaesque chat web`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from kafkaesque.chat.web_server import WebServer
from kafkaesque.cli.failures import usage
from kafkaesque.cli.service_process import (
    facts_file,
    host_port,
    run_service,
    say_ready,
    stop_signals,
)


def run_web(gateways: Sequence[str], listen: str, data: Path, end_with_stdin: bool) -> None:
    run_service(_serve([web_socket_url(one) for one in gateways], listen, data, end_with_stdin))


def web_socket_url(address: str) -> str:
    """HOST:PORT is ws://HOST:PORT/."""
    if "://" not in address:
        host_port(address)
        return f"ws://{address}/"
    if not address.startswith(("ws://", "wss://")):
        raise usage(f"'{address}' is no address for a browser: write HOST:PORT, ws:// or wss://.")
    return address


async def _serve(gateways: Sequence[str], listen: str, data: Path, end_with_stdin: bool) -> None:
    stopping = stop_signals(end_with_stdin)
    server = WebServer(gateways)
    http = await server.start(*host_port(listen))
    facts = {"http": http, "gateways": ",".join(gateways), "pid": str(os.getpid())}
    try:
        with facts_file(data / "web.json", facts):
            say_ready(facts)
            await stopping.wait()
    finally:
        await server.stop()
