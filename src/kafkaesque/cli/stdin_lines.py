"""Reads lines from standard input in an event loop: from a terminal, a pipe, a file or /dev/null.

An event loop cannot wait for a regular file (epoll rejects it), so a daemon thread reads. A daemon thread
that is blocked in a read does not keep the program from exiting.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import BinaryIO

LINES_AHEAD_MAX = 100


async def read_lines(stream: BinaryIO) -> AsyncIterator[str]:
    """Yields the lines of `stream` until its end. Reads at most LINES_AHEAD_MAX lines ahead."""
    loop = asyncio.get_running_loop()
    lines: asyncio.Queue[bytes] = asyncio.Queue()
    room = threading.Semaphore(LINES_AHEAD_MAX)

    def read() -> None:
        # RuntimeError: the loop is closed; the remaining lines are dropped.
        with suppress(RuntimeError):
            for line in stream:
                room.acquire()
                loop.call_soon_threadsafe(lines.put_nowait, line)
            loop.call_soon_threadsafe(lines.put_nowait, b"")

    threading.Thread(target=read, name="standard-input", daemon=True).start()
    while line := await lines.get():
        room.release()
        yield line.decode(errors="replace")
