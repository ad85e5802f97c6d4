"""Closes the sockets and lock files of this process's brokers in forked children.

A child that kept them would keep the broker's connections, port and data directory in use after the
broker stopped. Programs started with exec need nothing: descriptors are not inherited.
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


def register_broker(ports: tuple[int, ...], lock: Path) -> None:
    _running[ports] = lock


def unregister_broker(ports: tuple[int, ...]) -> None:
    _running.pop(ports, None)


def _close_in_child() -> None:
    """Runs in the child, which has no broker thread that could still use these descriptors."""
    if not _running:
        return
    ports = {port for some in _running for port in some}
    locks = set()
    for lock in _running.values():
        with suppress(OSError):
            locks.add(_identity(os.stat(lock)))
    _running.clear()
    for name in os.listdir(_DESCRIPTORS):
        # The descriptor of this listing itself is closed by now.
        with suppress(OSError):
            if _belongs_to_broker(int(name), ports, locks):
                os.close(int(name))


def _belongs_to_broker(fd: int, ports: set[int], locks: set[tuple[int, int]]) -> bool:
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


os.register_at_fork(after_in_child=_close_in_child)
