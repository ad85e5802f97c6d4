"""What a handler gets about the caller, and how it closes a connection without an answer.

Separate from `handler`, to avoid a cycle: `handler` imports `context`, which imports
`transaction_calls`, which needs `Call` and `CloseConnection`.
"""

from __future__ import annotations

from typing import NamedTuple


class ClientHost(str):
    """A client's address, and the monotonic time at which it made its connection."""

    connected_at: float

    @classmethod
    def at(cls, address: str, connected_at: float) -> ClientHost:
        made = cls(address)
        made.connected_at = connected_at
        return made


class CloseConnection(Exception):
    """Raised by a handler if the protocol has no other way to report a failure."""


class Call(NamedTuple):
    """The version and the sender of a request."""

    version: int
    client_id: str | None
    client_host: str

    @property
    def connected_at(self) -> float | None:
        """When the client made its connection; None for a request that another broker forwarded."""
        host = self.client_host
        return host.connected_at if isinstance(host, ClientHost) else None
