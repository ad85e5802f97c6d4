"""The same small interface over every client library, so that one test runs with all of them."""

from __future__ import annotations

from tests.conformance.clients.model import (
    Client,
    ClientFailure,
    Consumer,
    Message,
    Received,
    Unavailable,
)
from tests.conformance.clients.registry import CLIENTS, open_client

__all__ = [
    "CLIENTS",
    "Client",
    "ClientFailure",
    "Consumer",
    "Message",
    "Received",
    "Unavailable",
    "open_client",
]
