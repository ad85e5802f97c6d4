"""Commands that `up` runs again and again."""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path

from tests.waiting import eventually

from kafkaesque.up.periodic import run_round, run_until_stopped


def python(program: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", program, *arguments]


def test_round_goes_on_after_a_failure() -> None:
    commands = [python("raise SystemExit(3)"), python("pass")]
    assert run_round(commands, threading.Event()) == [3, 0]


def test_rounds_follow_each_other_until_they_are_to_stop(tmp_path: Path) -> None:
    seen, stopping = tmp_path / "seen", threading.Event()
    once = python("import sys; open(sys.argv[1], 'a').write('x')", str(seen))
    thread = threading.Thread(target=run_until_stopped, args=(0.0, [once], stopping))
    thread.start()
    try:
        eventually(lambda: seen.exists() and len(seen.read_text()) >= 2, "two rounds")
    finally:
        stopping.set()
        thread.join(60)
    assert not thread.is_alive()


def test_command_under_way_is_ended_when_it_is_to_stop(tmp_path: Path) -> None:
    """The command would wait for ever: its standard input ends only with this process."""
    begun, stopping = tmp_path / "begun", threading.Event()
    endless = python("import sys; open(sys.argv[1], 'w'); sys.stdin.read()", str(begun))
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.extend(run_round([endless, endless], stopping)))
    thread.start()
    try:
        eventually(begun.exists, "the command begins")
    finally:
        stopping.set()
        thread.join(60)
    assert not thread.is_alive()
    assert codes == [-signal.SIGTERM]
