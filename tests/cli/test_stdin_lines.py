"""Lines of standard input from a file, a pipe and /dev/null."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path
from typing import BinaryIO

import uvloop

from kafkaesque.cli.stdin_lines import LINES_AHEAD_MAX, read_lines


def read(stream: BinaryIO) -> list[str]:
    async def all_lines() -> list[str]:
        return [line async for line in read_lines(stream)]

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(all_lines())


def test_file_is_read_to_its_end(tmp_path: Path) -> None:
    lines = [f"line {number}\n" for number in range(3 * LINES_AHEAD_MAX)]
    path = tmp_path / "input"
    path.write_text("".join(lines))
    with path.open("rb") as file:
        assert read(file) == lines


def test_empty_input_has_no_lines() -> None:
    with open(os.devnull, "rb") as empty:
        assert read(empty) == []


def test_pipe_is_read_while_it_is_open_and_may_be_abandoned() -> None:
    source, sink = os.pipe()

    async def first(stream: BinaryIO) -> str:
        return await anext(read_lines(stream))

    with os.fdopen(source, "rb") as stream, os.fdopen(sink, "wb", buffering=0) as writer:
        writer.write(b"hello\n")
        assert asyncio.run(first(stream)) == "hello\n"
        writer.close()
        for thread in threading.enumerate():
            if thread.name == "standard-input":
                thread.join(60)
