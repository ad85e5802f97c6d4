"""Server processes as commands: addresses from options, and errors as exit codes.

Starting and stopping itself is in `kafkaesque.service.process`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from kafkaesque.cli.failures import CannotConnect, Failure, usage
from kafkaesque.client.ports import LogError
from kafkaesque.service.process import new_event_loop, parse_address

T = TypeVar("T")


def host_port(text: str) -> tuple[str, int]:
    """HOST:PORT of an option; anything else is a usage error."""
    try:
        return parse_address(text)
    except ValueError as error:
        raise usage(str(error)) from None


def run_service(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` on an event loop of its own; LogError and OSError become failures of the command."""
    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            return runner.run(work)
    except LogError as error:
        raise Failure(str(error)) from None
    except OSError as error:
        raise CannotConnect(f"cannot listen: {error}", "port 0 takes a free one") from None
