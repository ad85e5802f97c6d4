"""Dispatches messages from other brokers to the cluster or to another service."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from kafkaesque.broker.cluster.cluster import ClusterInbox
from kafkaesque.broker.replication.replica_set import ReplicaSet
from kafkaesque.model.ids import NodeId

SERVICE_KINDS_FROM = 16
"""Lower kinds of calls and posts belong to the cluster."""


class PeerService(Protocol):
    """Handles calls and posts that do not belong to the cluster."""

    def call(self, node: NodeId, kind: int, body: bytes) -> bytes | Awaitable[bytes]: ...

    def post(self, node: NodeId, kind: int, body: bytes) -> None: ...


class PeerInbox:
    """Implements `LinkInbox` of `replication.link`. Methods that only forward are bound methods of the
    replica set and the cluster, which saves a call per message."""

    __slots__ = (
        "_cluster",
        "_services",
        "dropped",
        "heartbeats_since",
        "raft_message",
        "reachable",
        "unreachable",
    )

    def __init__(
        self,
        replicas: ReplicaSet,
        cluster: ClusterInbox,
        services: Callable[[], Mapping[range, PeerService]],
    ) -> None:
        """`services` returns the services by the kinds that each handles. It is a function because
        they are built on the links, whose inbox this is; called once messages arrive."""
        self.raft_message = replicas.step  # `Link._receive` calls it for every Raft message
        self.dropped = replicas.dropped
        self.heartbeats_since = replicas.heartbeats_since
        self.reachable = cluster.reachable
        self.unreachable = cluster.unreachable
        self._cluster = cluster
        self._services = services

    def call(self, node: NodeId, kind: int, body: bytes) -> bytes | Awaitable[bytes]:
        return self._service(kind).call(node, kind, body)

    def post(self, node: NodeId, kind: int, body: bytes) -> None:
        self._service(kind).post(node, kind, body)

    def _service(self, kind: int) -> PeerService:
        for kinds, service in self._services().items():
            if kind in kinds:
                return service
        return self._cluster
