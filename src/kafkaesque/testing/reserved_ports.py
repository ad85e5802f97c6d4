"""Free ports of this machine that stay reserved for the processes that will listen on them."""

from __future__ import annotations

import socket

HOST = "127.0.0.1"


class ReservedPorts:
    """Ports reserved for a process before it listens and while it is down.

    A socket that is bound and never listens holds each port. Linux lets a server bind beside it (both
    have SO_REUSEADDR), but does not use the port for outgoing connections: neither for those of other
    processes, nor for those of a client of the server that is down, which would connect to itself.
    """

    def __init__(self, count: int = 0) -> None:
        self._sockets: list[socket.socket] = []
        self.numbers: tuple[int, ...] = ()
        self.take(count)

    def take(self, count: int) -> tuple[int, ...]:
        """Reserve and return `count` more ports."""
        for _ in range(count):
            holder = socket.socket()
            self._sockets.append(holder)
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            holder.bind((HOST, 0))
            self.numbers += (holder.getsockname()[1],)
        return self.numbers[len(self.numbers) - count :]

    def close(self) -> None:
        for holder in self._sockets:
            holder.close()

    def __enter__(self) -> ReservedPorts:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
