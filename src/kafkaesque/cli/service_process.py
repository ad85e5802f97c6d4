"""Runs server processes as commands: parses addresses and turns errors into exit codes.

`kafkaesque.service.process` starts and stops the processes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from kafkaesque.cli.failures import CannotConnect, CommandFailure, usage
from kafkaesque.client.ports import LogError
from kafkaesque.model.address import is_loopback, parse_address
from kafkaesque.service.process import new_event_loop

T = TypeVar("T")


def host_port(text: str) -> tuple[str, int]:
    """HOST:PORT of an option; anything else is a usage error."""
    try:
        return parse_address(text)
    except ValueError as error:
        raise usage(str(error)) from None


def guarded_host_port(
    option: str, text: str, *, insecure: bool, has_tls: bool = False
) -> tuple[str, int]:
    """HOST:PORT of a listener; a usage error if other machines could reach it in plaintext."""
    host, port = host_port(text)
    if not insecure and not has_tls and not is_loopback(host):
        raise usage(
            f"{option}: {host} can be reached from other machines and this listener is plaintext; "
            "listen on 127.0.0.1 behind a proxy with TLS, or use --insecure if your network is trusted."
        )
    return host, port


def run_service(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` on a new event loop; LogError and OSError become failures of the command."""
    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            return runner.run(work)
    except LogError as error:
        raise CommandFailure(str(error)) from None
    except OSError as error:
        raise CannotConnect(f"cannot listen: {error}", "use port 0 for any free port") from None
