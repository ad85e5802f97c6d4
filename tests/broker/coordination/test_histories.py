"""Clients read, write and move between servers while servers lag; their histories are checked
afterwards.

One node is a register. The checks: writes are linear (versions and zxids agree, each version once), a
read returns what was written at that version, a client never reads an older version than before, even
after a move, and a watch fires before its client can see newer data.
"""

from __future__ import annotations

import random
import struct
import threading
from dataclasses import dataclass, field

import pytest
from tests.broker.coordination.cluster import Cluster
from tests.conformance_zookeeper.raw import Closed, RawClient, Reply, body, create_body

CREATE, GET, SET, SYNC = 1, 4, 5, 9
OPERATIONS = 300
NODE = "/register"


@dataclass
class History:
    """What all clients saw."""

    written: dict[int, tuple[int, bytes]] = field(default_factory=dict)
    """By version: zxid and value, of acknowledged writes."""
    read: list[tuple[int, int, bytes]] = field(default_factory=list)
    unknown: int = 0
    """Writes whose answer was lost."""
    wrong: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


class Client:
    """One session that wanders between servers."""

    def __init__(self, cluster: Cluster, history: History, seed: int) -> None:
        self._cluster = cluster
        self._history = history
        self._random = random.Random(seed)
        self._name = b"%d" % seed
        self._session = (0, bytes(16))
        self._last_zxid = 0
        self._seen_mzxid = 0
        self._armed: int | None = None
        """The mzxid at which a watch was set that has not fired."""
        self._wire: RawClient | None = None

    def run(self) -> None:
        for number in range(OPERATIONS):
            try:
                self._step(b"%s-%d" % (self._name, number))
            except (Closed, OSError):
                self._leave()
        self._leave()

    def _step(self, value: bytes) -> None:
        wire = self._connected()
        choice = self._random.random()
        if choice < 0.5:
            self._get(wire)
        elif choice < 0.85:
            self._set(wire, value)
        elif choice < 0.9:
            self._ask(wire, SYNC, body(NODE))
        else:
            self._leave()

    def _connected(self) -> RawClient:
        while self._wire is None:
            number = self._random.randrange(3)
            wire = RawClient(self._cluster.address(number))
            try:
                found = wire.connect(20_000, *self._session, self._last_zxid)
            except (Closed, OSError):  # that server lags
                wire.close()
                continue
            self._session = (found.session_id, found.password)
            self._wire = wire
        return self._wire

    def _leave(self) -> None:
        if self._wire is not None:
            self._wire.close()
        self._wire, self._armed = None, None

    def _ask(self, wire: RawClient, opcode: int, request: bytes) -> Reply:
        sent = wire.send(opcode, request)
        while (reply := wire.receive()).xid != sent:
            assert reply.xid == -1
            if self._armed is None:
                self._history.wrong.append("an event without a watch")
            self._armed = None
        self._last_zxid = max(self._last_zxid, reply.zxid)
        return reply

    def _get(self, wire: RawClient) -> None:
        reply = self._ask(wire, GET, body(NODE, True))
        data = reply.reader.buffer() or b""
        _, mzxid, _, _, version = struct.unpack(">qqqqi", reply.body[-68:-32])
        if mzxid < self._seen_mzxid:
            self._history.wrong.append(f"read {mzxid} after {self._seen_mzxid}")
        if self._armed is not None and mzxid != self._armed:
            self._history.wrong.append(f"saw {mzxid} before the event of a watch at {self._armed}")
        self._seen_mzxid, self._armed = mzxid, mzxid
        with self._history.lock:
            self._history.read.append((version, mzxid, data))

    def _set(self, wire: RawClient, value: bytes) -> None:
        try:
            reply = self._ask(wire, SET, body(NODE, value, -1))
        except (Closed, OSError):
            with self._history.lock:
                self._history.unknown += 1
            raise
        _, mzxid, _, _, version = struct.unpack(">qqqqi", reply.body[:36])
        if self._armed is not None:
            self._history.wrong.append("its own write was answered before the event")
        self._seen_mzxid = max(self._seen_mzxid, mzxid)
        with self._history.lock:
            if version in self._history.written:
                self._history.wrong.append(f"version {version} was written twice")
            self._history.written[version] = (mzxid, value)


def disturb(cluster: Cluster, seed: int, ended: threading.Event) -> None:
    """Followers lag for moments, and leadership moves."""
    chance = random.Random(seed)
    while not ended.wait(chance.random() * 0.03):
        lagging = chance.randrange(3)
        cluster.hold(lagging, True)
        ended.wait(chance.random() * 0.05)
        cluster.hold(lagging, False)
        if chance.random() < 0.2:
            cluster.elect(chance.randrange(3))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_history_is_linear_and_watches_come_first(seed: int) -> None:
    history, ended = History(), threading.Event()
    with Cluster(3) as cluster:
        with RawClient(cluster.address(0)) as first:
            first.connect()
            first.ask(CREATE, create_body(NODE, b"start"))
        clients = [Client(cluster, history, seed * 100 + number) for number in range(4)]
        threads = [threading.Thread(target=client.run, daemon=True) for client in clients]
        chaos = threading.Thread(target=disturb, args=(cluster, seed, ended), daemon=True)
        for thread in (*threads, chaos):
            thread.start()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
        ended.set()
        chaos.join(10)
        final = cluster.run(lambda: cluster.replicas[0].coordinator.machine.tree.require(NODE))
        assert len({cluster.run(replica.coordinator.snapshot) for replica in cluster.replicas}) == 1
    assert history.wrong == []
    versions = sorted(history.written)
    zxids = [history.written[version][0] for version in versions]
    assert zxids == sorted(set(zxids))
    assert len(versions) <= final.version <= len(versions) + history.unknown
    for version, mzxid, data in history.read:
        if version in history.written:
            assert history.written[version] == (mzxid, data)
