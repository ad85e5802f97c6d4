"""A process of `kafkaesque up` that runs `kafkaesque` commands periodically, one at a time.

    python -m kafkaesque.up.periodic 300 'pipeline run archive --once' 'pipeline run quality'

For batch jobs that end: they use memory only while they run. Their output goes to this process's log.
A command that fails runs again in the next round.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import threading
from collections.abc import Sequence

from kafkaesque.service.child_process import print_ready
from kafkaesque.service.process import stop_callback

TERMINATE_SECONDS_MAX = 20.0
_POLL_SECONDS = 0.2


def run_round(commands: Sequence[Sequence[str]], stopping: threading.Event) -> list[int]:
    """Run each command once and return their exit codes. After `stopping` no further one starts."""
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
    ours = (sys.executable, "-m", "kafkaesque.cli.main")
    commands = [[*ours, *shlex.split(line)] for line in lines]
    stopping = threading.Event()
    with stop_callback(stopping.set, end_with_stdin=True):
        print_ready({"every_seconds": seconds, "pid": os.getpid()})
        run_until_stopped(float(seconds), commands, stopping)


if __name__ == "__main__":
    main()
