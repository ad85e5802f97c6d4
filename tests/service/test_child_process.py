"""The `ready` line, and child processes that print it."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from kafkaesque.service.child_process import (
    ChildProcess,
    NotReady,
    log_tail,
    parse_ready,
    print_ready,
    read_ready,
    ready_line,
)

PROGRAM = """
import signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
print("warming up", flush=True)
print("ready http=127.0.0.1:1 word", *sys.argv[1:], flush=True)
print("one more line", flush=True)
while True:
    signal.pause()
"""
DEAF = """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
while True:
    signal.pause()
"""


def child(directory: Path, program: str, **options: float) -> ChildProcess:
    return ChildProcess("one", [sys.executable, "-c", program], directory / "log", **options)


def test_facts_come_back_from_the_line() -> None:
    facts = {"http": "127.0.0.1:1", "pid": 17}
    assert ready_line(facts) == "ready http=127.0.0.1:1 pid=17"
    assert parse_ready(ready_line(facts)) == {"http": "127.0.0.1:1", "pid": "17"}
    assert parse_ready("ready\n") == {}


@pytest.mark.parametrize("line", ["", "\n", "not ready\n", "readyish a=b\n"])
def test_other_lines_are_not_ready(line: str) -> None:
    assert parse_ready(line) is None


def test_line_is_printed_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    print_ready({"http": "127.0.0.1:1"})
    assert capsys.readouterr().out == "ready http=127.0.0.1:1\n"


def test_line_is_read_from_a_stream() -> None:
    async def read(data: bytes) -> dict[str, str]:
        stream = asyncio.StreamReader()
        stream.feed_data(data)
        stream.feed_eof()
        return await read_ready(stream)

    assert asyncio.run(read(b"warming up\nready a=1\n")) == {"a": "1"}
    with pytest.raises(EOFError):
        asyncio.run(read(b"warming up\n"))


def test_child_becomes_ready_is_killed_started_again_and_stopped(tmp_path: Path) -> None:
    process = child(tmp_path, PROGRAM)
    assert not process.is_running
    process.start()
    assert process.facts == {"http": "127.0.0.1:1"}
    assert process.read_line(60.0) == "one more line\n"
    first = process.pid
    process.kill()
    assert not process.is_running
    process.launch("name=second")
    process.wait_ready()
    assert process.facts == {"http": "127.0.0.1:1", "name": "second"}
    assert process.pid not in (0, first)
    assert process.stop() == 7
    assert process.stop() == 0, "it has stopped already"


def test_child_that_ends_before_it_is_ready_is_an_error_with_its_log(tmp_path: Path) -> None:
    process = child(tmp_path, "raise SystemExit('no such thing')")
    with pytest.raises(NotReady, match="no such thing"):
        process.start()
    assert process.wait(60.0) == 1


def test_child_that_never_gets_ready_is_an_error(tmp_path: Path) -> None:
    process = child(tmp_path, "import time; time.sleep(3600)", ready_seconds_max=0.1)
    with pytest.raises(NotReady, match="did not become ready"):
        process.start()
    process.kill()


def test_child_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    process = child(tmp_path, DEAF, stop_seconds_max=0.1)
    process.start()
    assert process.stop() == -9


def test_child_sees_the_end_of_its_input(tmp_path: Path) -> None:
    process = child(tmp_path, "import sys; print('ready', flush=True); sys.stdin.read()")
    process.start()
    process.end_input()
    assert process.wait(60.0) == 0


def test_log_tail_is_the_end_of_each_file_that_exists(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1\n2\n3\n")
    (tmp_path / "b").write_text("4\n")
    logs = [tmp_path / name for name in ("a", "missing", "b")]
    assert log_tail(*logs, lines=2) == "2\n3\n4"
