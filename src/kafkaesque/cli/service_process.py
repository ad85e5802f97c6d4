"""What every server process of the platform does alike: it takes addresses, says `ready` with the real
ones, leaves them in a file while it runs, and stops in order at a signal. Settings: `server_settings`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from kafkaesque.cli.failures import CannotConnect, ExitCode, Failure, usage
from kafkaesque.client.ports import LogError

T = TypeVar("T")

READY_POLL_SECONDS = 0.02
ORPHAN_SECONDS_MAX = 30.0
"""For an orderly stop after the supervisor's end."""


def host_port(text: str) -> tuple[str, int]:
    """HOST:PORT; an IPv6 address may stand in brackets."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise usage(f"'{text}' is not HOST:PORT.")
    return host.strip("[]"), int(port)


def say_ready(facts: Mapping[str, str]) -> None:
    """The line that supervisors and scripts wait for."""
    click.echo("ready " + " ".join(f"{name}={value}" for name, value in facts.items()))
    sys.stdout.flush()


@contextlib.contextmanager
def facts_file(path: Path | None, facts: Mapping[str, str]) -> Iterator[None]:
    """Pid and addresses, for as long as this process runs; None: no file is wanted.

    At the end it stays if it is another's by then: a successor that took over has written its own.
    """
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(dict(facts)) + "\n")
    try:
        yield
    finally:
        if path is not None and read_facts(path).get("pid") == facts["pid"]:
            path.unlink(missing_ok=True)


def read_facts(path: Path) -> dict[str, str]:
    """What `facts_file` wrote; nothing where there is no such file."""
    with contextlib.suppress(OSError, ValueError):
        found = json.loads(path.read_text())
        if isinstance(found, dict):
            return found
    return {}


def stop_signals(
    end_with_stdin: bool, orphan_seconds_max: float = ORPHAN_SECONDS_MAX
) -> asyncio.Event:
    """Set by SIGTERM, by Ctrl-C, and by the end of a supervisor's pipe."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)

    def orphaned() -> None:
        # The end of a pipe can be read for ever.
        loop.remove_reader(sys.stdin.fileno())
        stopping.set()
        end_orphan_after(orphan_seconds_max)

    if end_with_stdin:
        loop.add_reader(sys.stdin.fileno(), orphaned)
    return stopping


def end_orphan_after(seconds: float = ORPHAN_SECONDS_MAX) -> None:
    """Nobody is left who would lose patience with this process: what its orderly stop waits for, a
    broker above all, may have gone with its supervisor."""
    timer = threading.Timer(seconds, os._exit, (int(ExitCode.FAILED),))
    timer.daemon = True
    timer.start()


async def serve_until_stopped(
    runs: Sequence[Coroutine[Any, Any, None]],
    stops: Sequence[Callable[[], None]],
    is_ready: Callable[[], bool],
    stopping: asyncio.Event,
    facts: Mapping[str, str],
) -> None:
    """Run everything, say ready when all is, and stop all when one ends or a signal comes."""
    running = [asyncio.create_task(run) for run in runs]
    stop = asyncio.create_task(stopping.wait())
    first = asyncio.FIRST_COMPLETED
    try:
        done: set[asyncio.Task[Any]] = set()
        while not done and not is_ready():
            done, _ = await asyncio.wait(
                [*running, stop], timeout=READY_POLL_SECONDS, return_when=first
            )
        if is_ready():
            say_ready(facts)
        await asyncio.wait([*running, stop], return_when=first)
        for one in stops:
            one()
        await asyncio.gather(*running)
    finally:
        for task in (*running, stop):
            task.cancel()
        await asyncio.gather(*running, stop, return_exceptions=True)


def run_service(work: Coroutine[Any, Any, T]) -> T:
    """`work` on the quickest event loop there is; what ends it early is told to the user."""
    try:
        with asyncio.Runner(loop_factory=_new_loop) as runner:
            return runner.run(work)
    except LogError as error:
        raise Failure(str(error)) from None
    except OSError as error:
        raise CannotConnect(f"cannot listen: {error}", "port 0 takes a free one") from None


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
