"""The raw load generator: replays requests that were built before the clock started.

Each connection has its own rule for what to send next; `drive` runs all connections of a process in one
epoll loop. It does as little per request as possible, because generator and server share the machine's
cores: answers are kept as bytes and checked after the clock stopped, and fetched records are discarded
inside the kernel. The contents of requests are up to the caller.
"""

from __future__ import annotations

import select
import socket
from collections import deque
from collections.abc import Sequence
from time import perf_counter_ns
from typing import Protocol

RECEIVE_BYTES = 64 * 1024
DISCARD_BYTES = 4 << 20
HEAD_BYTES = 512
"""How much of a fetch answer is read: its header, to detect errors."""


class LoadFailed(Exception):
    """The server closed the connection, or its answer makes the measurement useless."""


class LoadConnection(Protocol):
    """A connection for `drive`, which calls `push` when it may send and `pull` when bytes arrived."""

    sock: socket.socket

    def push(self) -> bool:
        """Send what is due. True: the socket is full, call again when it is writable."""
        ...

    def pull(self) -> None:
        """Read the bytes that have arrived."""
        ...

    @property
    def finished(self) -> bool:
        """Whether there is nothing more to send and nothing in flight."""
        ...


def drive(connections: Sequence[LoadConnection]) -> float:
    """Run all connections until they are finished; returns the seconds from first send to last answer."""
    poller = select.epoll()
    by_fd: dict[int, LoadConnection] = {}
    for connection in connections:
        connection.sock.setblocking(False)
        by_fd[connection.sock.fileno()] = connection
        poller.register(connection.sock.fileno(), select.EPOLLIN)
    blocked: set[int] = set()
    open_fds = set(by_fd)
    started_ns = perf_counter_ns()
    for fd, connection in by_fd.items():
        _push(poller, blocked, fd, connection)
    while open_fds:
        for fd, event in poller.poll():
            connection = by_fd[fd]
            if event & ~select.EPOLLOUT:
                connection.pull()
            _push(poller, blocked, fd, connection)
            if connection.finished and fd in open_fds:
                open_fds.discard(fd)
                poller.unregister(fd)
    elapsed_ns = perf_counter_ns() - started_ns
    poller.close()
    return elapsed_ns / 1e9


def _push(poller: select.epoll, blocked: set[int], fd: int, connection: LoadConnection) -> None:
    is_full = connection.push()
    if is_full != (fd in blocked):
        poller.modify(fd, select.EPOLLIN | (select.EPOLLOUT if is_full else 0))
        (blocked.add if is_full else blocked.discard)(fd)


class ReplayConnection:
    """Sends one frame `count` times with at most `in_flight_max` unanswered; keeps the answers."""

    def __init__(self, sock: socket.socket, frame: bytes, count: int, in_flight_max: int) -> None:
        self.sock = sock
        self.answers: list[bytes] = []
        self.latencies_ns: list[int] = []
        self._frame = memoryview(frame)
        self._left = count
        self._in_flight_max = in_flight_max
        self._sent_at_ns: deque[int] = deque()
        self._position = 0
        self._pending = bytearray()

    @property
    def finished(self) -> bool:
        return self._left == 0 and not self._sent_at_ns

    def push(self) -> bool:
        frame, size = self._frame, len(self._frame)
        while self._left and (self._position or len(self._sent_at_ns) < self._in_flight_max):
            if self._position == 0:
                self._sent_at_ns.append(perf_counter_ns())
            try:
                self._position += self.sock.send(frame[self._position :])
            except BlockingIOError:
                return True
            if self._position == size:
                self._position = 0
                self._left -= 1
        return False

    def pull(self) -> None:
        data = self.sock.recv(RECEIVE_BYTES)
        if not data:
            raise LoadFailed("the server closed the connection")
        now_ns = perf_counter_ns()
        pending = self._pending
        pending += data
        start, end = 0, len(pending)
        while end - start >= 4:
            stop = start + 4 + int.from_bytes(pending[start : start + 4])
            if stop > end:
                break
            self.answers.append(bytes(pending[start + 4 : stop]))
            self.latencies_ns.append(now_ns - self._sent_at_ns.popleft())
            start = stop
        del pending[:start]


class FetchConnection:
    """Reads one partition from offset 0 again and again until `bytes_wanted` have arrived.

    One request is in flight, as for a consumer of one broker. All batches of the partition have the
    same size, so the next offset follows from the length of the answer. A batch that is cut off at the
    end (as Apache Kafka does) is requested again.
    """

    def __init__(
        self,
        sock: socket.socket,
        frame: bytearray,
        offset_position: int,
        *,
        overhead_bytes: int,
        batch_bytes: int,
        batch_records: int,
        end_offset: int,
        bytes_wanted: int,
    ) -> None:
        self.sock = sock
        self.bytes_received = 0
        self.records_received = 0
        self.heads: list[bytes] = []
        self._frame = frame
        self._offset_position = offset_position
        self._batch = (batch_bytes, batch_records)
        self._overhead_bytes = overhead_bytes
        self._end_offset = end_offset
        self._bytes_wanted = bytes_wanted
        self._is_waiting = False
        self._head = bytearray()
        self._to_discard = 0
        self._sink = bytearray(DISCARD_BYTES)

    @property
    def finished(self) -> bool:
        return not self._is_waiting and self.bytes_received >= self._bytes_wanted

    def push(self) -> bool:
        if not self._is_waiting and self.bytes_received < self._bytes_wanted:
            self.sock.send(self._frame)
            self._is_waiting = True
        return False

    def pull(self) -> None:
        if self._to_discard == 0:
            data = self.sock.recv(HEAD_BYTES - len(self._head))
            if not data:
                raise LoadFailed("the server closed the connection")
            self._head += data
            if len(self._head) < 4:
                return
            size_bytes = 4 + int.from_bytes(self._head[:4])
            if len(self._head) < min(HEAD_BYTES, size_bytes):
                return
            self.heads.append(bytes(self._head[4:]))
            self._to_discard = size_bytes - len(self._head)
            self._head.clear()
            self._count(size_bytes)
        if self._to_discard:
            # Linux drops the bytes without copying them (tcp(7), MSG_TRUNC).
            want = min(self._to_discard, DISCARD_BYTES)
            try:
                got = self.sock.recv_into(self._sink, want, socket.MSG_TRUNC)
            except BlockingIOError:
                return
            if got == 0:
                raise LoadFailed("the server closed the connection")
            self._to_discard -= got
        if self._to_discard == 0:
            self._is_waiting = False

    def _count(self, size_bytes: int) -> None:
        batch_bytes, batch_records = self._batch
        batches = (size_bytes - self._overhead_bytes) // batch_bytes
        if batches == 0:
            raise LoadFailed(f"a fetch answer of {size_bytes} B holds no batch")
        self.bytes_received += batches * batch_bytes
        self.records_received += batches * batch_records
        at = self._offset_position
        offset = int.from_bytes(self._frame[at : at + 8]) + batches * batch_records
        if offset >= self._end_offset:
            offset = 0
        self._frame[at : at + 8] = offset.to_bytes(8)


def round_trips(sock: socket.socket, frame: bytes, count: int) -> tuple[list[int], list[bytes]]:
    """One at a time on one blocking connection: latencies in nanoseconds, and the answers."""
    sock.setblocking(True)
    latencies_ns: list[int] = []
    answers: list[bytes] = []
    for _ in range(count):
        start_ns = perf_counter_ns()
        sock.sendall(frame)
        data = sock.recv(RECEIVE_BYTES)
        while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4]):
            more = sock.recv(RECEIVE_BYTES)
            if not more:
                raise LoadFailed("the server closed the connection")
            data += more
        latencies_ns.append(perf_counter_ns() - start_ns)
        answers.append(data[4:])
    return latencies_ns, answers
