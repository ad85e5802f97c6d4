"""One `kafkaesque up` for a data directory: the second is refused and told of the first."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from kafkaesque.cli.control_client import running_processes
from kafkaesque.cli.failures import Failure

FILE_NAME = "up.lock"


@contextlib.contextmanager
def held(data: Path) -> Iterator[None]:
    """The directory is this process's while the block runs. Raises Failure.

    The kernel drops the lock when the process ends, however it ends; the file stays, because whoever
    opened it just before would otherwise lock a file that nobody else sees.
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


def _refusal(data: Path, pid: str) -> Failure:
    processes = running_processes(data) or []
    console = next(
        (item["facts"]["http"] for item in processes
         if item["name"] == "console" and "http" in item["facts"]),
        None,
    )  # fmt: skip
    where = f", its console is http://{console}" if console else ""
    return Failure(
        f"kafkaesque up runs with {data} already: process {pid or 'unknown'}{where}",
        f"`kafkaesque status --data {data}` shows what it runs and `kill {pid}` stops it in order; "
        "or give this one another --data and --port",
    )
