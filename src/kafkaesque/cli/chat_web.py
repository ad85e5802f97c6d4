"""The process behind `kafkaesque chat web`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import click

from kafkaesque.chat.web_server import WebServer
from kafkaesque.cli.failures import usage
from kafkaesque.cli.service_process import (
    facts_file,
    host_port,
    run_service,
    say_ready,
    stop_signals,
)


def run_web(
    gateways: Sequence[str], listen: str, data: Path, end_with_stdin: bool, as_json: bool
) -> None:
    urls = [web_socket_url(one) for one in gateways]
    tell = _say_ready_in_json if as_json else say_ready
    run_service(_serve(urls, listen, data, end_with_stdin, tell))


def _say_ready_in_json(facts: Mapping[str, str]) -> None:
    click.echo(json.dumps(facts))
    sys.stdout.flush()


def web_socket_url(address: str) -> str:
    """HOST:PORT is ws://HOST:PORT/."""
    if "://" not in address:
        host_port(address)
        return f"ws://{address}/"
    if not address.startswith(("ws://", "wss://")):
        raise usage(f"'{address}' is no address for a browser: write HOST:PORT, ws:// or wss://.")
    return address


async def _serve(
    gateways: Sequence[str],
    listen: str,
    data: Path,
    end_with_stdin: bool,
    tell: Callable[[Mapping[str, str]], None],
) -> None:
    stopping = stop_signals(end_with_stdin)
    server = WebServer(gateways)
    http = await server.start(*host_port(listen))
    facts = {"http": http, "gateways": ",".join(gateways), "pid": str(os.getpid())}
    try:
        with facts_file(data / "web.json", facts):
            tell(facts)
            await stopping.wait()
    finally:
        await server.stop()
