"""What is to be sent to one client: kept in order, sent together, bounded."""

from __future__ import annotations

import asyncio
import logging

from kafkaesque.broker.coordination.words import ServerCounts

logger = logging.getLogger("kafkaesque.broker.coordination.rules")


class Outbox:
    """Everything put in one turn of the event loop leaves in one write, which is a system call."""

    __slots__ = ("_counts", "_limit_bytes", "_parts", "_transport")

    def __init__(
        self, transport: asyncio.Transport, limit_bytes: int, counts: ServerCounts
    ) -> None:
        self._transport = transport
        self._limit_bytes = limit_bytes
        self._counts = counts
        self._parts: list[bytes] = []

    def put(self, data: bytes) -> None:
        """Send `data` behind all that was put before."""
        if not self._parts:
            asyncio.get_running_loop().call_soon(self.flush)
        self._parts.append(data)

    def flush(self) -> None:
        """Hand it to the socket now. A client that lets too much wait for it is cut off."""
        parts, self._parts = self._parts, []
        transport = self._transport
        if not parts or transport.is_closing():
            return
        self._counts.sent += len(parts)
        transport.write(b"".join(parts))
        if transport.get_write_buffer_size() > self._limit_bytes:
            logger.warning("dropping %s: it does not read", transport.get_extra_info("peername"))
            transport.abort()
