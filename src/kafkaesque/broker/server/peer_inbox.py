"""Dispatches messages from other brokers to the cluster or to another service."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol

from kafkaesque.broker.raft.messages import Message
from kafkaesque.broker.replication.link import Inbox
from kafkaesque.model.ids import GroupId, NodeId

SERVICE_KINDS_FROM = 16
"""Lower kinds of calls and posts belong to the cluster."""


class PeerService(Protocol):
    """Handles calls and posts that do not belong to the cluster."""

    def call(self, node: NodeId, kind: int, body: bytes) -> bytes | Awaitable[bytes]: ...

    def post(self, node: NodeId, kind: int, body: bytes) -> None: ...


class PeerInbox:
    """Implements `link.Inbox`."""

    __slots__ = ("_cluster", "_services")

    def __init__(self, cluster: Inbox, services: dict[range, PeerService]) -> None:
        """`services` by the kinds that each handles, all from SERVICE_KINDS_FROM on."""
        self._cluster = cluster
        self._services = services

    def raft_message(self, group: GroupId, message: Message) -> None:
        self._cluster.raft_message(group, message)

    def call(self, node: NodeId, kind: int, body: bytes) -> bytes | Awaitable[bytes]:
        return self._service(kind).call(node, kind, body)

    def post(self, node: NodeId, kind: int, body: bytes) -> None:
        self._service(kind).post(node, kind, body)

    def reachable(self, node: NodeId) -> None:
        self._cluster.reachable(node)

    def unreachable(self, node: NodeId) -> None:
        self._cluster.unreachable(node)

    def dropped(self, node: NodeId) -> None:
        self._cluster.dropped(node)

    def spoke_at(self) -> float:
        return self._cluster.spoke_at()

    def _service(self, kind: int) -> PeerService:
        for kinds, service in self._services.items():
            if kind in kinds:
                return service
        return self._cluster
