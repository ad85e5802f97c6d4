"""Clients of the coordination service that wander between servers and write down what they see."""

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
from kafkaesque.lab.faults.chance import seeded
from kafkaesque.lab.faults.znode_history import (
    Connection,
    Ending,
    Kind,
    Operation,
    ReadSeen,
    ReplySeen,
)
from kafkaesque.lab.faults.znode_wire import Gone, Reply, Session, SessionEnded, Told, Wire

ROOT: Final = "/registers"
REGISTERS: Final = tuple(f"{ROOT}/{number}" for number in range(3))
TOGETHER: Final = REGISTERS[:2]
"""What transactions change."""
LIVING: Final = "/living"
SESSION_MS: Final = 30_000
"""Longer than any fault of a run: these sessions must never end."""
MORTAL_MS: Final = 4_000
_PACE_S: Final = 0.02
_RECONNECT_S: Final = 0.1


@dataclass(slots=True)
class Story:
    """What all clients saw together."""

    operations: list[Operation] = field(default_factory=list)
    connections: list[Connection] = field(default_factory=list)
    together: dict[int, frozenset[str]] = field(default_factory=dict)
    complaints: list[str] = field(default_factory=list)
    mortal_ms: list[int] = field(default_factory=list)
    """How long each abandoned node outlived the last word of its session."""


def now_us() -> int:
    return time.monotonic_ns() // 1000


class _Worker(ABC):
    """A thread that works until `end`."""

    def __init__(self, addresses: Sequence[str], story: Story, seed: int) -> None:
        self._addresses = addresses
        self._story = story
        self._random: random.Random = seeded(seed)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"znodes-{seed}", daemon=True)
        self._failure: BaseException | None = None

    def start(self) -> None:
        self._thread.start()

    def end(self, within_s: float) -> None:
        """Raises what ended the thread, if anything did."""
        self._ended.set()
        self._thread.join(within_s)
        if self._thread.is_alive():
            self._story.complaints.append(f"{self._thread.name} did not end in {within_s:g} s")
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
        """One operation of this client."""

    def _some_address(self) -> str:
        return self._random.choice(self._addresses)


class Wanderer(_Worker):
    """One session that reads, writes and watches the registers, on one server after the other."""

    def __init__(self, addresses: Sequence[str], story: Story, seed: int, number: int) -> None:
        super().__init__(addresses, story, seed)
        self._number = number
        self._written = 0
        self._session = Session()
        self._has_node = False
        """Whether its ephemeral node was acknowledged: a connection may break before that."""
        self._last_zxid = 0
        self._wire: Wire | None = None
        self._log = Connection(number)
        self._armed: dict[str, int] = {}
        """Paths with a one-shot watch that has not fired, and the mzxid at which it was set."""
        self._versions: dict[str, int] = {}

    def _work(self) -> None:
        try:
            wire = self._connected()
            self._step(wire)
            self._ended.wait(self._random.uniform(0, _PACE_S))
        except Gone:
            self._leave()
            self._ended.wait(_RECONNECT_S)
        except SessionEnded as error:
            self._story.complaints.append(
                f"session {error} of client {self._number} ended although it was never silent for "
                f"{SESSION_MS / 1000:g} s"
            )
            self._leave()
            self._session, self._last_zxid, self._has_node = Session(), 0, False

    def _connected(self) -> Wire:
        if self._wire is not None:
            return self._wire
        wire = Wire(self._some_address(), self._heard)
        try:
            self._session = wire.attach(self._session, SESSION_MS, self._last_zxid)
            self._log = Connection(self._number, dict(self._armed))
            self._story.connections.append(self._log)
            if self._armed:
                self._note(wire.resume_watches(self._last_zxid, list(self._armed)))
            self._log.watching_from = sys.maxsize
            self._note(wire.watch_below(ROOT))
            self._log.watching_from = len(self._log.seen)
            if not self._has_node:
                self._note(wire.create(f"{LIVING}/{self._number}", CreateMode.EPHEMERAL))
                self._has_node = True
            elif not wire.exists(f"{LIVING}/{self._number}"):
                self._story.complaints.append(f"the node of client {self._number} died before it")
        except (Gone, SessionEnded):
            wire.close()
            raise
        self._wire = wire
        return wire

    def _leave(self) -> None:
        if self._wire is not None:
            self._wire.close()
        self._wire = None

    def _heard(self, told: Told) -> None:
        self._log.seen.append(told)
        self._armed.pop(told.path, None)

    def _note(self, reply: Reply) -> None:
        self._log.seen.append(ReplySeen(reply.zxid))
        self._last_zxid = max(self._last_zxid, reply.zxid)

    def _step(self, wire: Wire) -> None:
        path = self._random.choice(REGISTERS)
        choice = self._random.random()
        if choice < 0.3:
            self._write(wire, path)
        elif choice < 0.4:
            self._compare_and_set(wire, path)
        elif choice < 0.5:
            self._write_together(wire)
        elif choice < 0.7:
            self._read(wire, path, Kind.SYNCED_READ)
        elif choice < 0.97:
            self._read(wire, path, Kind.PLAIN_READ)
        else:
            self._leave()

    def _read(self, wire: Wire, path: str, kind: Kind) -> None:
        begun = now_us()
        if kind is Kind.SYNCED_READ:
            self._note(wire.sync(path))
        watch = path not in self._armed and self._random.random() < 0.3
        value, stat, zxid = wire.get(path, watch=watch)
        self._log.seen.append(ReadSeen(zxid, path, stat.version, stat.mzxid))
        self._last_zxid = max(self._last_zxid, zxid)
        self._versions[path] = stat.version
        if watch:
            self._armed[path] = stat.mzxid
        self._record(path, kind, Ending.DONE, begun, value, stat.version, stat.mzxid)

    def _value(self) -> bytes:
        self._written += 1
        return b"%d-%d" % (self._number, self._written)

    def _write(self, wire: Wire, path: str) -> None:
        begun, value = now_us(), self._value()
        try:
            reply, stat = wire.set(path, value)
        except Gone:
            self._record(path, Kind.WRITE, Ending.UNKNOWN, begun, value)
            raise
        self._note(reply)
        if stat is None:
            self._story.complaints.append(f"a write got error {reply.code}")
            return
        self._versions[path] = stat.version
        self._record(path, Kind.WRITE, Ending.DONE, begun, value, stat.version, stat.mzxid)

    def _compare_and_set(self, wire: Wire, path: str) -> None:
        expected = self._versions.get(path)
        if expected is None:
            return
        begun, value, kind = now_us(), self._value(), Kind.COMPARE_AND_SET
        try:
            reply, stat = wire.set(path, value, expected)
        except Gone:
            self._record(path, kind, Ending.UNKNOWN, begun, value, expected=expected)
            raise
        self._note(reply)
        if stat is not None:
            self._versions[path] = stat.version
            self._record(path, kind, Ending.DONE, begun, value, stat.version, stat.mzxid, expected)
        elif reply.code == Code.BAD_VERSION:
            self._record(path, kind, Ending.REFUSED, begun, value, expected=expected)

    def _write_together(self, wire: Wire) -> None:
        begun = now_us()
        parts = [(path, self._value()) for path in TOGETHER]
        try:
            reply, stats = wire.set_all(parts)
        except Gone:
            for path, value in parts:
                self._record(path, Kind.WRITE, Ending.UNKNOWN, begun, value)
            raise
        self._note(reply)
        for (path, value), stat in zip(parts, stats, strict=True):
            self._versions[path] = stat.version
            self._record(path, Kind.WRITE, Ending.DONE, begun, value, stat.version, stat.mzxid)
        if len({stat.mzxid for stat in stats}) != 1:
            self._story.complaints.append(f"a transaction has several zxids: {stats}")
        self._story.together[stats[0].mzxid] = frozenset(TOGETHER)

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
        operation = Operation(
            self._number, path, kind, ending, begun_us, now_us(), value, version, mzxid, expected
        )
        self._story.operations.append(operation)


class Mortal(_Worker):
    """Sessions that make a node and fall silent: it must live as long as the session, then go."""

    def __init__(
        self, addresses: Sequence[str], story: Story, seed: int, outlives_s: float
    ) -> None:
        super().__init__(addresses, story, seed)
        self._outlives_s = outlives_s
        self._made = 0

    def _work(self) -> None:
        try:
            path, spoke_s = self._make()
        except (Gone, SessionEnded):
            self._ended.wait(_RECONNECT_S)
            return
        deadline = spoke_s + MORTAL_MS / 1000 + self._outlives_s
        while not self._ended.is_set():
            if self._retry(lambda wire: not self._is_there(wire, path)):
                lived_s = time.monotonic() - spoke_s
                if lived_s < MORTAL_MS / 1000:
                    self._story.complaints.append(f"{path} died after {lived_s:.2f} s")
                self._story.mortal_ms.append(int(lived_s * 1000))
                return
            if time.monotonic() > deadline:
                self._story.complaints.append(f"{path} outlives its session")
                return
            self._ended.wait(_RECONNECT_S)

    def _make(self) -> tuple[str, float]:
        """A node, and when its session was certainly still heard."""
        self._made += 1
        path = f"{LIVING}/mortal-{self._made}"
        wire = Wire(self._some_address(), lambda _: None)
        try:
            wire.attach(Session(), MORTAL_MS, 0)
            spoke_s = time.monotonic()
            if wire.create(path, CreateMode.EPHEMERAL).code != Code.OK:
                raise Gone("not made")
        finally:
            wire.close()
        return path, spoke_s

    @staticmethod
    def _is_there(wire: Wire, path: str) -> bool:
        wire.sync(path)
        return wire.exists(path)

    def _retry(self, look: Callable[[Wire], bool]) -> bool:
        """False while no server answers."""
        try:
            wire = Wire(self._some_address(), lambda _: None)
        except Gone:
            return False
        try:
            wire.attach(Session(), MORTAL_MS, 0)
            return look(wire)
        except (Gone, SessionEnded):
            return False
        finally:
            wire.close()
