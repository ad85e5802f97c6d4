"""A console as a process: serves until a signal, with its address in `console.json` meanwhile."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from kafkaesque.console.operator_password import password_path
from kafkaesque.console.web.app import run_console
from kafkaesque.console.web.config import ConsoleConfig
from kafkaesque.service.process import facts_file, stop_event

FACTS_NAME = "console.json"


async def serve_console(
    config: ConsoleConfig,
    data: Path,
    on_ready: Callable[[Mapping[str, str]], None],
    *,
    end_with_stdin: bool,
) -> None:
    """Serves until a signal. Raises InvalidSecurity, and OSError if it cannot listen."""
    stopping = stop_event(end_with_stdin)
    with contextlib.ExitStack() as stack:

        def ready(address: str) -> None:
            facts = {
                "http": address,
                "pid": str(os.getpid()),
                "password": str(password_path(data)),
            }
            stack.enter_context(facts_file(data / FACTS_NAME, facts))
            on_ready(facts)

        await run_console(config, stopping, ready)
