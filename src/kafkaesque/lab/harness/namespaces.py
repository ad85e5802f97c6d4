"""A network namespace for every broker on one machine, on a bridge, with links that can be cut.

A cut is a false hardware address in the sender's neighbour table: its packets leave and no one receives
them. So each direction can be cut separately and silently, with only root and iproute2. Clients stay
outside and reach every broker.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_CLONE_NEWNET: Final = 0x40000000
_UNUSED_MAC: Final = "02:00:00:00:00:00"
_PORT: Final = 9092
_HOST_NUMBER: Final = 1
_FIRST_NODE_NUMBER: Final = 10


class NetworkFailed(Exception):
    """A command of iproute2 failed; the message has its output."""


def impossible() -> str | None:
    """The reason why no namespaces can be created here; None if they can."""
    if os.geteuid() != 0:
        return "it needs root to make network namespaces"
    if shutil.which("ip") is None:
        return "it needs the command `ip` (Debian: apt-get install -y iproute2)"
    try:
        NamespaceNetwork(1).close()
    except NetworkFailed as error:
        return f"no network namespaces on a bridge can be made: {error}"
    return None


class NamespaceNetwork:
    """A BrokerNetwork of `count` brokers, one namespace each."""

    def __init__(self, count: int) -> None:
        tag = random.SystemRandom().randrange(1, 255)
        self._subnet = f"10.213.{tag}"
        self._tag = tag
        self._count = count
        self._bridge = f"kqbr{tag}"
        self._cuts: set[tuple[int, int]] = set()
        try:
            self._build()
        except NetworkFailed:
            self.close()
            raise

    def _build(self) -> None:
        _ip("link", "add", self._bridge, "type", "bridge")
        _ip("addr", "add", f"{self._subnet}.{_HOST_NUMBER}/24", "dev", self._bridge)
        _ip("link", "set", self._bridge, "up")
        for node in range(self._count):
            outside, name = f"kqv{self._tag}n{node}", self._name(node)
            _ip("netns", "add", name)
            peer = ("type", "veth", "peer", "name", "eth0", "netns", name)
            _ip("link", "add", outside, *peer)
            _ip("link", "set", outside, "master", self._bridge, "up")
            _ip("-n", name, "addr", "add", f"{self._host(node)}/24", "dev", "eth0")
            _ip("-n", name, "link", "set", "eth0", "up")
            _ip("-n", name, "link", "set", "lo", "up")

    def _name(self, node: int) -> str:
        return f"kq{self._tag}n{node}"

    def _host(self, node: int) -> str:
        return f"{self._subnet}.{_FIRST_NODE_NUMBER + node}"

    def address(self, node: int) -> str:
        return f"{self._host(node)}:{_PORT}"

    @contextlib.contextmanager
    def inside(self, node: int) -> Iterator[None]:
        with Path("/proc/thread-self/ns/net").open() as home:
            with Path(f"/run/netns/{self._name(node)}").open() as there:
                _enter(there.fileno())
            try:
                yield
            finally:
                _enter(home.fileno())

    def cut(self, source: int, target: int) -> None:
        """Drop all packets from `source` to `target` until `heal`."""
        place = ("neigh", "replace", self._host(target), "lladdr", _UNUSED_MAC)
        _ip("-n", self._name(source), *place, "nud", "permanent", "dev", "eth0")
        self._cuts.add((source, target))

    def heal(self) -> None:
        for source, target in self._cuts:
            _ip("-n", self._name(source), "neigh", "del", self._host(target), "dev", "eth0")
        self._cuts.clear()

    def close(self) -> None:
        """Remove whatever exists of the network."""
        with contextlib.suppress(NetworkFailed):
            _ip("link", "del", self._bridge)
        for node in range(self._count):
            with contextlib.suppress(NetworkFailed):
                _ip("netns", "del", self._name(node))


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NetworkFailed(f"ip {' '.join(words)}: {done.stderr.strip()}")


def _enter(namespace: int) -> None:
    """Move the calling thread, and processes it starts, into a namespace."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace, _CLONE_NEWNET) != 0:
        code = ctypes.get_errno()
        raise NetworkFailed(f"setns: {os.strerror(code)}")
