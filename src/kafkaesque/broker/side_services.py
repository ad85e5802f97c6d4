"""The services of a broker besides Kafka, each on a listener of its own: coordination and text.

Without its listener a service has no clients here. The broker has its replica of the coordination
tree anyway, since a majority of all brokers keeps it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from kafkaesque.broker.cluster.cluster import Cluster
from kafkaesque.broker.coordination.service import CoordinationService
from kafkaesque.broker.replication.replica_set import ReplicaSet
from kafkaesque.broker.server.addresses import guarded_address
from kafkaesque.broker.server.peer_inbox import PeerService
from kafkaesque.broker.storage.open_files import OpenFiles
from kafkaesque.broker.text.server import Serve, TextServer
from kafkaesque.model.address import Address
from kafkaesque.model.clock import Clock
from kafkaesque.model.ids import MemberId
from kafkaesque.model.settings import BrokerConfig

COORDINATION_KINDS = range(16, 24)
TEXT_KINDS = range(24, 32)
"""Kinds of calls and posts between brokers."""


class SideServices:
    """Opened with the data, started after the Kafka listener, stopped before it."""

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
        cluster: Cluster,
        serve: Serve,
        clock: Clock,
        fail: Callable[[BaseException], None],
        *,
        first_members: tuple[MemberId, ...],
        is_clean: bool,
    ) -> SideServices:
        """`serve` answers a Kafka request on this broker. Blocking."""
        coordination = CoordinationService.open(
            data,
            files,
            replicas,
            cluster,
            clock,
            fail,
            first_members=first_members,
            is_clean=is_clean,
        )
        return cls(coordination, TextServer(cluster, serve, clock))

    def by_kind(self) -> Mapping[range, PeerService]:
        """The services by the kinds of calls and posts that they answer."""
        return {COORDINATION_KINDS: self.coordination, TEXT_KINDS: self.text}

    async def serve(self, config: BrokerConfig) -> None:
        """Opens the configured listeners."""
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
        """For the ready line and the address file."""
        found = {"coordination": self.coordination_address, "text": self.text_address}
        return {name: str(address) if address else None for name, address in found.items()}

    async def stop(self) -> None:
        """Closes the clients' connections, so that they find another broker."""
        await self.text.stop()
        await self.coordination.stop()
