"""What a forked child must not keep of its parent's brokers.

A child that lives on with the sockets and the lock of a broker would hold its clients, its port and
its data after the broker stopped. So the child closes them first of all. Programs started with exec
need nothing: descriptors are not inherited.
"""

from __future__ import annotations

import os
import socket
import stat
from contextlib import suppress
from pathlib import Path

_DESCRIPTORS = "/dev/fd"

_running: dict[tuple[int, ...], Path] = {}
"""Ports and lock file of each broker of this process."""


def broker_runs(ports: tuple[int, ...], lock: Path) -> None:
    _running[ports] = lock


def broker_ended(ports: tuple[int, ...]) -> None:
    _running.pop(ports, None)


def _let_go() -> None:
    """In the child, where no thread of a broker exists: its event loop will never miss these."""
    if not _running:
        return
    ports = {port for some in _running for port in some}
    locks = set()
    for lock in _running.values():
        with suppress(OSError):
            locks.add(_identity(os.stat(lock)))
    _running.clear()
    for name in os.listdir(_DESCRIPTORS):
        # The descriptor of this very listing is gone by now.
        with suppress(OSError):
            if _is_broker_s(int(name), ports, locks):
                os.close(int(name))


def _is_broker_s(fd: int, ports: set[int], locks: set[tuple[int, int]]) -> bool:
    status = os.fstat(fd)
    if not stat.S_ISSOCK(status.st_mode):
        return _identity(status) in locks
    borrowed = socket.socket(fileno=fd)
    try:
        name = borrowed.getsockname()
    finally:
        borrowed.detach()
    return isinstance(name, tuple) and name[1] in ports


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


os.register_at_fork(after_in_child=_let_go)
