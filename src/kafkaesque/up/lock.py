"""One `kafkaesque up` per data directory: a second one is refused."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from kafkaesque.up.control_client import running_processes

FILE_NAME = "up.lock"


class AlreadyRunning(Exception):
    """Another `up` runs with this data directory; `fix` is what to do."""

    def __init__(self, message: str, fix: str) -> None:
        super().__init__(message)
        self.fix = fix


@contextlib.contextmanager
def held(data: Path) -> Iterator[None]:
    """Hold the directory's lock while the block runs. Raises AlreadyRunning.

    The kernel drops the lock when the process ends, however it ends. The file stays: were it
    deleted, a process that had just opened it would lock a file that no other process sees.
    """
    data.mkdir(parents=True, exist_ok=True)
    fd = os.open(data / FILE_NAME, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _refusal(data, os.pread(fd, 32, 0).decode("ascii", "replace").strip()) from None
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(fd)


def _refusal(data: Path, pid: str) -> AlreadyRunning:
    processes = running_processes(data) or []
    console = next(
        (item["facts"]["http"] for item in processes
         if item["name"] == "console" and "http" in item["facts"]),
        None,
    )  # fmt: skip
    where = f", its console is http://{console}" if console else ""
    return AlreadyRunning(
        f"kafkaesque up already runs with {data}: process {pid or 'unknown'}{where}",
        f"`kafkaesque status --data {data}` shows its processes and `kill {pid}` stops it; "
        "or use another --data and --port",
    )
