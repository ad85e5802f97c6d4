"""Dispatches messages from other brokers to the cluster or to another service."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from kafkaesque.broker.cluster.cluster import ClusterInbox
from kafkaesque.broker.raft.messages import Message
from kafkaesque.broker.replication.replica_set import ReplicaSet
from kafkaesque.model.ids import GroupId, NodeId

SERVICE_KINDS_FROM = 16
"""Lower kinds of calls and posts belong to the cluster."""


class PeerService(Protocol):
    """Handles calls and posts that do not belong to the cluster."""

    def call(self, node: NodeId, kind: int, body: bytes) -> bytes | Awaitable[bytes]: ...

    def post(self, node: NodeId, kind: int, body: bytes) -> None: ...


class PeerInbox:
    """Implements `LinkInbox` of `replication.link`."""

    __slots__ = ("_cluster", "_replicas", "_services")

    def __init__(
        self,
        replicas: Callable[[], ReplicaSet],
        cluster: Callable[[], ClusterInbox],
        services: Callable[[], Mapping[range, PeerService]],
    ) -> None:
        """Functions, because all of these are built on the links, whose inbox this is. They are
        called once messages arrive. `services` returns the services by the kinds that each
        handles."""
        self._replicas = replicas
        self._cluster = cluster
        self._services = services

    def raft_message(self, group: GroupId, message: Message) -> None:
        self._replicas().step(group, message)

    def dropped(self, node: NodeId) -> None:
        self._replicas().dropped(node)

    def heartbeats_since(self) -> float:
        return self._replicas().heartbeats_since()

    def reachable(self, node: NodeId) -> None:
        self._cluster().reachable(node)

    def unreachable(self, node: NodeId) -> None:
        self._cluster().unreachable(node)

    def call(self, node: NodeId, kind: int, body: bytes) -> bytes | Awaitable[bytes]:
        return self._service(kind).call(node, kind, body)

    def post(self, node: NodeId, kind: int, body: bytes) -> None:
        self._service(kind).post(node, kind, body)

    def _service(self, kind: int) -> PeerService:
        for kinds, service in self._services().items():
            if kind in kinds:
                return service
        return self._cluster()
