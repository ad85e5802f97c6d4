"""Ensembles of three coordination servers under test: ours and Apache ZooKeeper's.

ZooKeeper comes in two releases: the one of Maven Central and the one that Debian ships.
"""

from __future__ import annotations

import contextlib
import shutil
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

from kafkaesque.lab.bench.clusters import BROKERS, OurCluster
from kafkaesque.lab.bench.peers import Peer, PeerFailed, PeerOptions
from kafkaesque.lab.bench.raw_load import LoadFailed
from kafkaesque.testing.waiting import poll_until

POLL_S = 0.05
VOTING_TIMEOUT_S = 60.0


class CoordinationPeer(Peer):
    """Serves ZooKeeper's protocol at three addresses."""

    @property
    @abstractmethod
    def servers(self) -> tuple[str, ...]: ...


class OurCoordination(CoordinationPeer):
    """Three of our brokers, each with a coordination listener; every write is synced on a majority."""

    name = "ours"

    def __init__(self, options: PeerOptions) -> None:
        super().__init__(options)
        settings = {**options.settings, "coordination.listener": "127.0.0.1:0"}
        self._cluster = OurCluster(replace(options, durable=True, settings=settings))

    def start(self) -> None:
        self._cluster.start()
        poll_until(
            lambda: self._voters() == BROKERS,
            "every broker is a voter of the coordination service",
            VOTING_TIMEOUT_S,
            poll_s=POLL_S,
            error=PeerFailed,
        )

    def _voters(self) -> int:
        from kafkaesque.testing.zookeeper import srvr

        replies = [srvr(int(address.rpartition(":")[2])) for address in self.servers]
        return sum(b"Mode: leader" in one or b"Mode: follower" in one for one in replies)

    def stop(self) -> None:
        self._cluster.stop()

    @property
    def servers(self) -> tuple[str, ...]:
        return tuple(self._cluster.facts(number)["coordination"] for number in range(BROKERS))

    @property
    def pids(self) -> Sequence[int]:
        return self._cluster.pids

    @property
    def described(self) -> str:
        return f"kafkaesque {version('kafkaesque-platform')}, {BROKERS} brokers, flush=always"


class ZooKeeperPeer(CoordinationPeer):
    """An ensemble with ZooKeeper's own defaults, which also sync every write."""

    name = "zookeeper"

    def __init__(self, options: PeerOptions) -> None:
        super().__init__(options)
        from kafkaesque.testing.zookeeper import ZooKeeperEnsemble

        self._ensemble = ZooKeeperEnsemble(self._version())

    def _version(self) -> str:
        from kafkaesque.testing.zookeeper import DEFAULT_VERSION

        return DEFAULT_VERSION

    def start(self) -> None:
        from kafkaesque.testing.java_server import JavaServerFailed
        from kafkaesque.testing.maven import JavaUnavailable

        try:
            self._ensemble.start()
        except (JavaServerFailed, JavaUnavailable) as error:
            raise PeerFailed(str(error)) from error

    def stop(self) -> None:
        self._ensemble.stop()

    @property
    def servers(self) -> tuple[str, ...]:
        return self._ensemble.addresses

    @property
    def pids(self) -> Sequence[int]:
        return self._ensemble.pids

    @property
    def described(self) -> str:
        return f"Apache ZooKeeper {self._ensemble.version}, {BROKERS} servers, its defaults"


class DebianZooKeeperPeer(ZooKeeperPeer):
    """The same from Debian's package."""

    name = "zookeeper-debian"

    def _version(self) -> str:
        from kafkaesque.testing.zookeeper import DEBIAN

        return DEBIAN


_KINDS: dict[str, type[CoordinationPeer]] = {
    peer.name: peer for peer in (OurCoordination, ZooKeeperPeer, DebianZooKeeperPeer)
}


@contextlib.contextmanager
def running_coordinations(
    names: Sequence[str], directory: Path
) -> Iterator[list[CoordinationPeer]]:
    """All run at once, until the end of the `with`."""
    peers: list[CoordinationPeer] = []
    try:
        for name in names:
            if name not in _KINDS:
                raise LoadFailed(f"{name} does not support ZooKeeper's protocol")
            peers.append(_KINDS[name](PeerOptions(directory)))
            peers[-1].start()
        yield peers
    finally:
        for peer in peers:
            peer.stop()
        shutil.rmtree(directory, ignore_errors=True)
