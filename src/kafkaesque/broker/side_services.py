"""What a broker offers beside Kafka, each on a listener of its own: coordination, text.

Without its listener a service has no clients here; the replica of the coordination tree is there
all the same, since a majority of all brokers keeps it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from kafkaesque.broker.cluster.cluster import Cluster
from kafkaesque.broker.coordination.service import CoordinationService
from kafkaesque.broker.replication.replica_set import ReplicaSet
from kafkaesque.broker.server.addresses import Address, guarded_address
from kafkaesque.broker.server.peer_inbox import PeerService
from kafkaesque.broker.storage.open_files import OpenFiles
from kafkaesque.broker.text.server import Serve, TextServer
from kafkaesque.model.clock import Clock
from kafkaesque.model.ids import MemberId
from kafkaesque.model.settings import BrokerConfig

COORDINATION_KINDS = range(16, 24)
TEXT_KINDS = range(24, 32)
"""Of calls and posts between brokers."""


class SideServices:
    """Opened with the data, started behind the Kafka listener, stopped before it."""

    __slots__ = ("coordination", "coordination_address", "text", "text_address")

    def __init__(self, coordination: CoordinationService, text: TextServer) -> None:
        self.coordination = coordination
        self.text = text
        self.coordination_address: Address | None = None
        self.text_address: Address | None = None

    @classmethod
    def open(
        cls,
        data: Path,
        files: OpenFiles,
        replicas: ReplicaSet,
        clock: Clock,
        fail: Callable[[BaseException], None],
        *,
        first_members: tuple[MemberId, ...],
        is_clean: bool,
    ) -> SideServices:
        """Blocking."""
        coordination = CoordinationService.open(
            data, files, replicas, clock, fail, first_members=first_members, is_clean=is_clean
        )
        return cls(coordination, TextServer(clock))

    def by_kind(self) -> dict[range, PeerService]:
        """Who answers which calls and posts of other brokers."""
        return {COORDINATION_KINDS: self.coordination, TEXT_KINDS: self.text}

    def take_part(self, cluster: Cluster, serve: Serve) -> None:
        """From here on messages and elections happen. `serve` answers a Kafka request here."""
        self.text.connect(cluster, serve)
        self.coordination.take_part(cluster)

    async def serve(self, config: BrokerConfig) -> None:
        """Open the listeners that are wanted."""
        if config.coordination_listener:
            wanted = guarded_address(config, config.coordination_listener, "coordination.listener")
            self.coordination_address = Address(
                *await self.coordination.serve(wanted.host, wanted.port)
            )
        if config.text_listener:
            wanted = guarded_address(config, config.text_listener, "text.listener")
            await self.text.start(wanted.host, wanted.port)
            self.text_address = Address(*self.text.address)

    def addresses(self) -> dict[str, str | None]:
        """As the ready line and the address file tell them."""
        found = {"coordination": self.coordination_address, "text": self.text_address}
        return {name: str(address) if address else None for name, address in found.items()}

    async def advance(self) -> None:
        """Now and then."""
        await self.coordination.advance()

    async def stop(self) -> None:
        """Let the clients go, to find another broker."""
        await self.text.stop()
        await self.coordination.stop()

    def abort(self) -> None:
        """Nobody hears of this node any more."""
        self.coordination.abort()

    def close(self) -> bool:
        """True if everything is closed cleanly. Blocking."""
        return self.coordination.close()
