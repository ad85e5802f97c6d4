"""Clients of the coordination service that switch between servers and record what they see."""

from __future__ import annotations

import random
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from kafkaesque.broker.coordination.rules.vocabulary import Code, CreateMode
from kafkaesque.lab.faults.znode_connection import (
    SessionExpired,
    WatchEvent,
    ZnodeConnection,
    ZnodeConnectionLost,
    ZnodeReply,
    ZnodeSession,
)
from kafkaesque.lab.faults.znode_history import (
    ConnectionHistory,
    Ending,
    Kind,
    ReadSeen,
    RegisterOperation,
    ReplySeen,
)

ROOT: Final = "/registers"
REGISTERS: Final = tuple(f"{ROOT}/{number}" for number in range(3))
TRANSACTION_REGISTERS: Final = REGISTERS[:2]
"""The registers that transactions write."""
EPHEMERALS: Final = "/living"
SESSION_MS: Final = 30_000
"""Longer than any fault of a run: these sessions must never expire."""
EXPIRING_SESSION_MS: Final = 4_000
_PACE_S: Final = 0.02
_RECONNECT_S: Final = 0.1


@dataclass(slots=True)
class ZnodeHistory:
    """Everything that all clients of a run saw."""

    operations: list[RegisterOperation] = field(default_factory=list)
    connections: list[ConnectionHistory] = field(default_factory=list)
    transactions: dict[int, frozenset[str]] = field(default_factory=dict)
    """The paths that each transaction wrote, by its zxid."""
    complaints: list[str] = field(default_factory=list)
    expired_after_ms: list[int] = field(default_factory=list)
    """For each abandoned ephemeral node: time from the last request of its session to its removal."""


def now_us() -> int:
    return time.monotonic_ns() // 1000


class _Worker(ABC):
    """A client thread that works until `end`."""

    def __init__(self, addresses: Sequence[str], history: ZnodeHistory, seed: int) -> None:
        self._addresses = addresses
        self._history = history
        self._random = random.Random(seed)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"znodes-{seed}", daemon=True)
        self._failure: BaseException | None = None

    def start(self) -> None:
        self._thread.start()

    def end(self, within_s: float) -> None:
        """Stop the thread. Re-raises the exception that ended it, if any."""
        self._ended.set()
        self._thread.join(within_s)
        if self._thread.is_alive():
            self._history.complaints.append(f"{self._thread.name} did not end in {within_s:g} s")
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            while not self._ended.is_set():
                self._work()
        except Exception as error:  # noqa: BLE001 - raised again where the thread is joined
            self._failure = error

    @abstractmethod
    def _work(self) -> None:
        """Perform one operation."""

    def _some_address(self) -> str:
        return self._random.choice(self._addresses)


class RegisterClient(_Worker):
    """One session that reads, writes and watches the registers, on one server after another."""

    def __init__(
        self, addresses: Sequence[str], history: ZnodeHistory, seed: int, number: int
    ) -> None:
        super().__init__(addresses, history, seed)
        self._number = number
        self._written = 0
        self._session = ZnodeSession()
        self._has_node = False
        """Whether the creation of its ephemeral node was acknowledged."""
        self._last_zxid = 0
        self._connection: ZnodeConnection | None = None
        self._log = ConnectionHistory(number)
        self._armed: dict[str, int] = {}
        """Paths with a one-shot watch that has not fired, and the mzxid at which it was set."""
        self._versions: dict[str, int] = {}

    def _work(self) -> None:
        try:
            connection = self._connected()
            self._step(connection)
            self._ended.wait(self._random.uniform(0, _PACE_S))
        except ZnodeConnectionLost:
            self._leave()
            self._ended.wait(_RECONNECT_S)
        except SessionExpired as error:
            self._history.complaints.append(
                f"session {error} of client {self._number} expired although it was never silent for "
                f"{SESSION_MS / 1000:g} s"
            )
            self._leave()
            self._session, self._last_zxid, self._has_node = ZnodeSession(), 0, False

    def _connected(self) -> ZnodeConnection:
        if self._connection is not None:
            return self._connection
        connection = ZnodeConnection(self._some_address(), self._on_event)
        try:
            self._session = connection.attach(self._session, SESSION_MS, self._last_zxid)
            self._log = ConnectionHistory(self._number, dict(self._armed))
            self._history.connections.append(self._log)
            if self._armed:
                self._note(connection.resume_watches(self._last_zxid, list(self._armed)))
            self._log.watching_from = sys.maxsize
            self._note(connection.watch_below(ROOT))
            self._log.watching_from = len(self._log.seen)
            if not self._has_node:
                self._note(connection.create(f"{EPHEMERALS}/{self._number}", CreateMode.EPHEMERAL))
                self._has_node = True
            elif not connection.exists(f"{EPHEMERALS}/{self._number}"):
                self._history.complaints.append(
                    f"the node of client {self._number} was removed while its session was alive"
                )
        except (ZnodeConnectionLost, SessionExpired):
            connection.close()
            raise
        self._connection = connection
        return connection

    def _leave(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def _on_event(self, event: WatchEvent) -> None:
        self._log.seen.append(event)
        self._armed.pop(event.path, None)

    def _note(self, reply: ZnodeReply) -> None:
        self._log.seen.append(ReplySeen(reply.zxid))
        self._last_zxid = max(self._last_zxid, reply.zxid)

    def _step(self, connection: ZnodeConnection) -> None:
        path = self._random.choice(REGISTERS)
        choice = self._random.random()
        if choice < 0.3:
            self._write(connection, path)
        elif choice < 0.4:
            self._compare_and_set(connection, path)
        elif choice < 0.5:
            self._write_transaction(connection)
        elif choice < 0.7:
            self._read(connection, path, Kind.SYNCED_READ)
        elif choice < 0.97:
            self._read(connection, path, Kind.PLAIN_READ)
        else:
            self._leave()

    def _read(self, connection: ZnodeConnection, path: str, kind: Kind) -> None:
        begun = now_us()
        if kind is Kind.SYNCED_READ:
            self._note(connection.sync(path))
        watch = path not in self._armed and self._random.random() < 0.3
        value, stat, zxid = connection.get(path, watch=watch)
        self._log.seen.append(ReadSeen(zxid, path, stat.version, stat.mzxid))
        self._last_zxid = max(self._last_zxid, zxid)
        self._versions[path] = stat.version
        if watch:
            self._armed[path] = stat.mzxid
        self._record(path, kind, Ending.DONE, begun, value, stat.version, stat.mzxid)

    def _value(self) -> bytes:
        self._written += 1
        return b"%d-%d" % (self._number, self._written)

    def _write(self, connection: ZnodeConnection, path: str) -> None:
        begun, value = now_us(), self._value()
        try:
            reply, stat = connection.set(path, value)
        except ZnodeConnectionLost:
            self._record(path, Kind.WRITE, Ending.UNKNOWN, begun, value)
            raise
        self._note(reply)
        if stat is None:
            self._history.complaints.append(f"a write got error {reply.code}")
            return
        self._versions[path] = stat.version
        self._record(path, Kind.WRITE, Ending.DONE, begun, value, stat.version, stat.mzxid)

    def _compare_and_set(self, connection: ZnodeConnection, path: str) -> None:
        expected = self._versions.get(path)
        if expected is None:
            return
        begun, value, kind = now_us(), self._value(), Kind.COMPARE_AND_SET
        try:
            reply, stat = connection.set(path, value, expected)
        except ZnodeConnectionLost:
            self._record(path, kind, Ending.UNKNOWN, begun, value, expected=expected)
            raise
        self._note(reply)
        if stat is not None:
            self._versions[path] = stat.version
            self._record(path, kind, Ending.DONE, begun, value, stat.version, stat.mzxid, expected)
        elif reply.code == Code.BAD_VERSION:
            self._record(path, kind, Ending.REFUSED, begun, value, expected=expected)

    def _write_transaction(self, connection: ZnodeConnection) -> None:
        begun = now_us()
        parts = [(path, self._value()) for path in TRANSACTION_REGISTERS]
        try:
            reply, stats = connection.set_all(parts)
        except ZnodeConnectionLost:
            for path, value in parts:
                self._record(path, Kind.WRITE, Ending.UNKNOWN, begun, value)
            raise
        self._note(reply)
        for (path, value), stat in zip(parts, stats, strict=True):
            self._versions[path] = stat.version
            self._record(path, Kind.WRITE, Ending.DONE, begun, value, stat.version, stat.mzxid)
        if len({stat.mzxid for stat in stats}) != 1:
            self._history.complaints.append(f"a transaction has several zxids: {stats}")
        self._history.transactions[stats[0].mzxid] = frozenset(TRANSACTION_REGISTERS)

    def _record(
        self,
        path: str,
        kind: Kind,
        ending: Ending,
        begun_us: int,
        value: bytes,
        version: int = -1,
        mzxid: int = -1,
        expected: int = -1,
    ) -> None:
        operation = RegisterOperation(
            self._number, path, kind, ending, begun_us, now_us(), value, version, mzxid, expected
        )
        self._history.operations.append(operation)


class ExpiringClient(_Worker):
    """Creates ephemeral nodes and abandons their sessions.

    Each node must exist until its session expires, and no longer than `outlives_s` after that.
    """

    def __init__(
        self, addresses: Sequence[str], history: ZnodeHistory, seed: int, outlives_s: float
    ) -> None:
        super().__init__(addresses, history, seed)
        self._outlives_s = outlives_s
        self._created = 0

    def _work(self) -> None:
        try:
            path, alive_s = self._create()
        except (ZnodeConnectionLost, SessionExpired):
            self._ended.wait(_RECONNECT_S)
            return
        deadline = alive_s + EXPIRING_SESSION_MS / 1000 + self._outlives_s
        while not self._ended.is_set():
            if self._retry(lambda connection: not self._exists(connection, path)):
                lived_s = time.monotonic() - alive_s
                if lived_s < EXPIRING_SESSION_MS / 1000:
                    self._history.complaints.append(
                        f"{path} was removed after {lived_s:.2f} s, before its session expired"
                    )
                self._history.expired_after_ms.append(int(lived_s * 1000))
                return
            if time.monotonic() > deadline:
                self._history.complaints.append(
                    f"{path} still exists {self._outlives_s:g} s after its session should have expired"
                )
                return
            self._ended.wait(_RECONNECT_S)

    def _create(self) -> tuple[str, float]:
        """Creates a node; returns its path and a time at which its session was certainly alive."""
        self._created += 1
        path = f"{EPHEMERALS}/expiring-{self._created}"
        connection = ZnodeConnection(self._some_address(), lambda _: None)
        try:
            connection.attach(ZnodeSession(), EXPIRING_SESSION_MS, 0)
            alive_s = time.monotonic()
            if connection.create(path, CreateMode.EPHEMERAL).code != Code.OK:
                raise ZnodeConnectionLost("the node was not created")
        finally:
            connection.close()
        return path, alive_s

    @staticmethod
    def _exists(connection: ZnodeConnection, path: str) -> bool:
        connection.sync(path)
        return connection.exists(path)

    def _retry(self, look: Callable[[ZnodeConnection], bool]) -> bool:
        """The result of `look`, or False while no server answers."""
        try:
            connection = ZnodeConnection(self._some_address(), lambda _: None)
        except ZnodeConnectionLost:
            return False
        try:
            connection.attach(ZnodeSession(), EXPIRING_SESSION_MS, 0)
            return look(connection)
        except (ZnodeConnectionLost, SessionExpired):
            return False
        finally:
            connection.close()
