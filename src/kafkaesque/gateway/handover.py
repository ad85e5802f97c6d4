"""Planned restart without a disconnect: a new process takes over the listener and the connections.

The processes meet at a Unix socket in the data directory. The old process sends file descriptors (SCM_RIGHTS)
with the state of each connection; what clients send meanwhile waits in the kernel. Connections that cannot
be moved (TLS, an unfinished handshake, a client that does not read) are sent away as in a drain.

    old                                     new
    listens on DATA/handover.sock           is prepared, accepts no clients yet
                                    <-      {"format": 1}
    stops reading, settles writes
    listener                        ->
    up to 100 connections           ->      continues them
                                    <-      {"took": n}
    ... until none is left, {"end": true} ->  reports ready; the old process ends
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Sequence
from pathlib import Path

import msgspec

from kafkaesque.edge.protocol.codes import CloseCode
from kafkaesque.gateway.client_connection import ClientConnection
from kafkaesque.gateway.gateway import Gateway
from kafkaesque.gateway.handover_state import FORMAT, ConnectionState

logger = logging.getLogger(__name__)

SOCKET_NAME = "handover.sock"
BATCH_CONNECTIONS = 100
BATCH_SIZE_BYTES_MAX = 100_000
"""A message must fit in the send buffer of the Unix socket, which is 208 KiB by default."""
MESSAGE_SIZE_BYTES_MAX = 1024 * 1024
SETTLE_SECONDS = 5.0
STRAGGLE_SECONDS = 10.0
STEP_SECONDS = 0.05
IO_SECONDS_MAX = 30.0


class HandoverFailed(Exception):
    """The other process ended or uses another format; this one continues to serve."""


class Greeting(msgspec.Struct, frozen=True):
    format: int


class Batch(msgspec.Struct, frozen=True):
    """Sent with file descriptors: the listener's in the first batch, then one per connection."""

    connections: list[ConnectionState] = []
    listener: bool = False
    end: bool = False


class Took(msgspec.Struct, frozen=True):
    count: int


class HandoverServer:
    """The old process's side. Waits for a successor while the gateway runs."""

    def __init__(self, gateway: Gateway, data: Path) -> None:
        self._gateway = gateway
        self._path = data / SOCKET_NAME
        self._socket: socket.socket | None = None
        self._task: asyncio.Task[None] | None = None
        self.handed_over = asyncio.Event()

    def start(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()
        waiting = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        waiting.setblocking(False)
        waiting.bind(str(self._path))
        self._path.chmod(0o600)
        waiting.listen(1)
        self._socket = waiting
        self._task = asyncio.create_task(self._wait())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._socket is not None:
            self._socket.close()
            if not self.handed_over.is_set():
                self._path.unlink(missing_ok=True)

    async def _wait(self) -> None:
        loop = asyncio.get_running_loop()
        while self._socket is not None and not self.handed_over.is_set():
            successor, _ = await loop.sock_accept(self._socket)
            successor.setblocking(True)
            successor.settimeout(IO_SECONDS_MAX)
            try:
                await self._hand_over(_HandoverPeer(successor))
                self.handed_over.set()
            except (HandoverFailed, OSError, msgspec.DecodeError) as error:
                logger.error("handover failed, this process continues: %r", error)
                await self._gateway.thaw()
            finally:
                successor.close()

    async def _hand_over(self, peer: _HandoverPeer) -> None:
        greeting = msgspec.json.decode((await peer.receive())[0], type=Greeting)
        if greeting.format != FORMAT:
            raise HandoverFailed(f"the successor uses format {greeting.format}, not {FORMAT}")
        gateway = self._gateway
        listener = await gateway.freeze(SETTLE_SECONDS)
        await peer.send(Batch(listener=True), [listener.fileno()])
        deadline_s = gateway.connections.now_s() + STRAGGLE_SECONDS
        moved = 0
        while gateway.connections:
            ready = self._ready()
            for batch in _batches(ready):
                moved += await self._move(peer, batch)
            if not ready and gateway.connections.now_s() >= deadline_s:
                break
            if not ready:
                await asyncio.sleep(STEP_SECONDS)
        gateway.connections.close_all(CloseCode.GOING_AWAY, "this gateway restarts")
        await peer.send(Batch(end=True), [])
        logger.info("handover done: connections=%d", moved)

    def _ready(self) -> list[tuple[ClientConnection, ConnectionState]]:
        found = []
        for connection in self._gateway.connections:
            transport = connection.transport
            if transport is None or connection.closed:
                continue
            if transport.get_extra_info("ssl_object") or transport.get_write_buffer_size():
                continue
            state = self._gateway.connection_state(connection)
            if state is not None:
                found.append((connection, state))
        return found

    async def _move(
        self, peer: _HandoverPeer, together: Sequence[tuple[ClientConnection, ConnectionState]]
    ) -> int:
        batch = [pair for pair in together if not pair[0].closed]
        descriptors = [
            os.dup(connection.transport.get_extra_info("socket").fileno())
            for connection, _ in batch
            if connection.transport is not None
        ]
        try:
            await peer.send(Batch([state for _, state in batch]), descriptors)
            took = msgspec.json.decode((await peer.receive())[0], type=Took)
            if took.count != len(batch):
                raise HandoverFailed(f"the successor took {took.count} of {len(batch)}")
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        for connection, _ in batch:
            self._gateway.connections.handed_over(connection)
        return len(batch)


async def take_over(gateway: Gateway, data: Path) -> tuple[str, int]:
    """The new process's side, for a prepared gateway. Returns its address and the number of clients."""
    peer = _HandoverPeer(await asyncio.to_thread(_connect, data / SOCKET_NAME))
    count = 0
    address = ""
    try:
        await peer.send(Greeting(FORMAT), [])
        while True:
            data_bytes, descriptors = await peer.receive()
            if not data_bytes:
                raise HandoverFailed("the old process ended")
            batch = msgspec.json.decode(data_bytes, type=Batch)
            if batch.listener:
                address = await gateway.serve(socket.socket(fileno=descriptors[0]))
            elif batch.end:
                return address, count
            else:
                for state, descriptor in zip(batch.connections, descriptors, strict=True):
                    await gateway.connections.adopt(state, socket.socket(fileno=descriptor))
                count += len(descriptors)
                await peer.send(Took(len(descriptors)), [])
    except (OSError, msgspec.DecodeError) as error:
        raise HandoverFailed(f"the handover failed: {error!r}") from None
    finally:
        peer.close()


def _connect(path: Path) -> socket.socket:
    connected = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connected.settimeout(IO_SECONDS_MAX)
    try:
        connected.connect(str(path))
    except OSError as error:
        connected.close()
        raise HandoverFailed(f"no gateway to take over from at {path}: {error}") from None
    return connected


def _batches(
    ready: Sequence[tuple[ClientConnection, ConnectionState]],
) -> list[list[tuple[ClientConnection, ConnectionState]]]:
    batches: list[list[tuple[ClientConnection, ConnectionState]]] = []
    size_bytes = 0
    for pair in ready:
        weight = len(pair[1].rest) * 4 // 3 + 1000 + 150 * len(pair[1].outlets)
        full = not batches or len(batches[-1]) >= BATCH_CONNECTIONS
        if full or size_bytes + weight > BATCH_SIZE_BYTES_MAX:
            batches.append([])
            size_bytes = 0
        batches[-1].append(pair)
        size_bytes += weight
    return batches


class _HandoverPeer:
    """Messages with file descriptors. The calls block, so each runs in a thread."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected

    async def send(self, message: msgspec.Struct, descriptors: Sequence[int]) -> None:
        data = msgspec.json.encode(message)
        await asyncio.to_thread(self._send, data, descriptors)

    def _send(self, data: bytes, descriptors: Sequence[int]) -> None:
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
        self._socket.sendmsg([data], rights if descriptors else [])

    async def receive(self) -> tuple[bytes, list[int]]:
        return await asyncio.to_thread(self._receive)

    def _receive(self) -> tuple[bytes, list[int]]:
        held = array.array("i")
        room = socket.CMSG_SPACE((BATCH_CONNECTIONS + 1) * held.itemsize)
        data, ancillary, _, _ = self._socket.recvmsg(MESSAGE_SIZE_BYTES_MAX, room)
        for level, kind, payload in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                held.frombytes(payload[: len(payload) - len(payload) % held.itemsize])
        return data, list(held)

    def close(self) -> None:
        self._socket.close()
