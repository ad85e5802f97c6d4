"""Start and stop of a server process: event loop, addresses, signals, and the file that has its
addresses while it runs. The `ready` line is in `child_process`.
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
from typing import Any

from kafkaesque.service.child_process import print_ready

READY_POLL_SECONDS = 0.02
ORPHAN_SECONDS_MAX = 30.0
"""How long an orderly stop may take after the supervisor has died."""
_EXIT_FAILED = 1


def new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop if it is installed, otherwise asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


# -- addresses of a running process ----------------------------------------------------------------


@contextlib.contextmanager
def facts_file(path: Path | None, facts: Mapping[str, str]) -> Iterator[None]:
    """Keep pid and addresses in `path` while the block runs; None writes no file.

    At the end the file stays if another process has written it meanwhile: a successor that took
    over from this one.
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
    """The facts that `facts_file` wrote; empty if there is no such file."""
    with contextlib.suppress(OSError, ValueError):
        found = json.loads(path.read_text())
        if isinstance(found, dict):
            return found
    return {}


# -- stopping --------------------------------------------------------------------------------------


def stop_event(
    end_with_stdin: bool = False,
    *,
    orphan_seconds_max: float | None = ORPHAN_SECONDS_MAX,
    signals: Sequence[signal.Signals] = (signal.SIGINT, signal.SIGTERM),
) -> asyncio.Event:
    """Set by SIGTERM, by Ctrl-C and, for children of a supervisor, by the end of standard input.

    An orphan that has not stopped after `orphan_seconds_max` exits; None lets it take its time.
    """
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in signals:
        loop.add_signal_handler(number, stopping.set)

    def orphaned() -> None:
        # The end of a pipe stays readable: without this the loop would spin.
        loop.remove_reader(sys.stdin.fileno())
        stopping.set()
        if orphan_seconds_max is not None:
            exit_after(orphan_seconds_max)

    if end_with_stdin:
        loop.add_reader(sys.stdin.fileno(), orphaned)
    return stopping


@contextlib.contextmanager
def stop_callback(
    stop: Callable[[], None],
    end_with_stdin: bool,
    *,
    orphan_seconds_max: float | None = ORPHAN_SECONDS_MAX,
) -> Iterator[None]:
    """As `stop_event`, for processes without an event loop. `stop` is called in the main thread by a
    signal and in another thread at the end of standard input."""

    def handle(_number: int, _frame: object) -> None:
        stop()

    def watch() -> None:
        sys.stdin.buffer.read()
        stop()
        if orphan_seconds_max is not None:
            exit_after(orphan_seconds_max)

    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    if end_with_stdin:
        threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def exit_after(seconds: float) -> None:
    """Exit in `seconds`, whatever the process does then.

    An orphan has no supervisor that would kill it, and its orderly stop may wait for a broker that
    died with the supervisor.
    """
    timer = threading.Timer(seconds, os._exit, (_EXIT_FAILED,))
    timer.daemon = True
    timer.start()


# -- serving ---------------------------------------------------------------------------------------


async def serve_until_stopped(
    runs: Sequence[Coroutine[Any, Any, None]],
    stops: Sequence[Callable[[], None]],
    is_ready: Callable[[], bool],
    stopping: asyncio.Event,
    facts: Mapping[str, str],
) -> None:
    """Run everything, print `ready` once all are, and stop all when one ends or `stopping` is set."""
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
            print_ready(facts)
        await asyncio.wait([*running, stop], return_when=first)
        for one in stops:
            one()
        await asyncio.gather(*running)
    finally:
        for task in (*running, stop):
            task.cancel()
        await asyncio.gather(*running, stop, return_exceptions=True)
