"""Who asks, as a handler is told, and how one is turned away without an answer."""

from __future__ import annotations

from typing import NamedTuple


class ClientHost(str):
    """The address of a client, and when (monotonic) it made the connection that it asks over."""

    connected_at: float

    @classmethod
    def at(cls, address: str, connected_at: float) -> ClientHost:
        made = cls(address)
        made.connected_at = connected_at
        return made


class CloseConnection(Exception):
    """Raised by a handler where the protocol leaves no other way to tell of a failure."""


class Call(NamedTuple):
    """Who asks, and in which version of the API."""

    version: int
    client_id: str | None
    client_host: str

    @property
    def connected_at(self) -> float | None:
        """When the client made its connection; None for what another broker passed on."""
        host = self.client_host
        return host.connected_at if isinstance(host, ClientHost) else None
