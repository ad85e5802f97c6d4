"""A process of `kafkaesque up` that runs commands of ours again and again, one at a time.

    python -m kafkaesque.cli.up_periodic 300 'pipeline run archive --once' 'pipeline run quality'

For jobs that read what is there and end: their memory is theirs only while they run. What a command
says goes to this process's log; one that fails is tried again at the next round.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence

from kafkaesque.cli.service_process import say_ready

TERMINATE_SECONDS_MAX = 20.0
_POLL_SECONDS = 0.2


def run_round(commands: Sequence[Sequence[str]], stopping: threading.Event) -> list[int]:
    """Exit codes in their order; those that were not begun when it is to stop are left out."""
    codes = []
    for command in commands:
        if stopping.is_set():
            break
        # A pipe that ends with this process, as the supervisor's own children have.
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=sys.stderr, stderr=sys.stderr
        ) as process:
            codes.append(_wait(process, stopping))
        sys.stderr.write(f"{shlex.join(command)}: exit code {codes[-1]}\n")
        sys.stderr.flush()
    return codes


def _wait(process: subprocess.Popen[bytes], stopping: threading.Event) -> int:
    while process.poll() is None and not stopping.wait(_POLL_SECONDS):
        pass
    if process.poll() is None:
        process.terminate()
    try:
        return process.wait(TERMINATE_SECONDS_MAX if stopping.is_set() else None)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def run_until_stopped(
    seconds: float, commands: Sequence[Sequence[str]], stopping: threading.Event
) -> None:
    while not stopping.is_set():
        run_round(commands, stopping)
        stopping.wait(seconds)


def main() -> None:
    seconds, *lines = sys.argv[1:]
    stopping = threading.Event()

    def stop(_number: int, _frame: object) -> None:
        stopping.set()

    def watch() -> None:
        sys.stdin.buffer.read()
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    threading.Thread(target=watch, daemon=True).start()
    say_ready({"every_seconds": seconds, "pid": str(os.getpid())})
    ours = (sys.executable, "-m", "kafkaesque.cli.main")
    run_until_stopped(float(seconds), [[*ours, *shlex.split(line)] for line in lines], stopping)


if __name__ == "__main__":
    main()
