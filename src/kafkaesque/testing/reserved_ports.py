"""Free ports of this machine that stay free for those whose they are to be."""

from __future__ import annotations

import socket

HOST = "127.0.0.1"


class ReservedPorts:
    """Ports that stay a process's own before it listens there, and while it is down.

    Each is held by a socket that is bound and never listens. Linux lets a server bind beside it
    (both have SO_REUSEADDR), but gives the port to no outgoing connection meanwhile: not to a
    stranger's, nor to a client's that dials the very server that is down and would meet itself.
    """

    def __init__(self, count: int = 0) -> None:
        self._sockets: list[socket.socket] = []
        self.numbers: tuple[int, ...] = ()
        self.take(count)

    def take(self, count: int) -> tuple[int, ...]:
        """So many more."""
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
