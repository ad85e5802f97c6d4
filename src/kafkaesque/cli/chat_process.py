"""What the processes of `kafkaesque chat` share: signals, the ready line, the file of addresses."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from kafkaesque.cli.failures import usage


def host_port(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise usage(f"'{text}' is not HOST:PORT.")
    return host, int(port)


def stop_signals(end_with_stdin: bool) -> asyncio.Event:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    if end_with_stdin:
        loop.add_reader(sys.stdin.fileno(), stopping.set)
    return stopping


def say_ready(facts: dict[str, str]) -> None:
    click.echo("ready " + " ".join(f"{name}={value}" for name, value in facts.items()))
    sys.stdout.flush()


@contextlib.contextmanager
def facts_file(path: Path, facts: dict[str, str]) -> Iterator[None]:
    """Pid and addresses, for as long as this process runs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(facts) + "\n")
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
