"""The controller's Raft group as DescribeQuorum reports it."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from kafkaesque.broker.cluster.rules.tables import Tables
from kafkaesque.broker.raft.ready import Status
from kafkaesque.model.ids import (
    NO_OFFSET,
    NO_TIMESTAMP,
    NO_TOPIC_ID,
    MemberId,
    NodeId,
    Offset,
    TimestampMs,
    node_of,
)


@dataclass(frozen=True, slots=True)
class QuorumReplica:
    """One member. Unknown fields have Kafka's values for that."""

    node_id: NodeId
    directory_id: UUID = NO_TOPIC_ID
    log_end_offset: Offset = NO_OFFSET
    last_fetch_ms: TimestampMs = NO_TIMESTAMP
    """When it last sent a message, by the leader's clock."""
    last_caught_up_ms: TimestampMs = NO_TIMESTAMP
    """When it last had the leader's whole log."""


@dataclass(frozen=True, slots=True)
class QuorumNode:
    """A voter's address."""

    node_id: NodeId
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class QuorumInfo:
    leader_id: NodeId
    epoch: int
    high_watermark: Offset
    """In log entries, as in Kafka."""
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...] = ()
    nodes: tuple[QuorumNode, ...] = ()


def quorum_info(status: Status, tables: Tables, now_ms: TimestampMs) -> QuorumInfo:
    """Converts Raft's status of the controller's group, which this node leads."""

    def described(member: MemberId) -> QuorumReplica:
        disk, peer = tables.disks.get(node_of(member)), status.peers.get(member)
        last_index = status.last_index if peer is None else peer.match_index
        is_active = peer is None or peer.is_active
        return QuorumReplica(
            node_of(member),
            NO_TOPIC_ID if disk is None else disk.directory_id,
            log_end_offset=Offset(last_index + 1),
            last_fetch_ms=now_ms if is_active else NO_TIMESTAMP,
            last_caught_up_ms=now_ms if last_index >= status.commit_index else NO_TIMESTAMP,
        )

    voters = status.membership.voters
    return QuorumInfo(
        leader_id=node_of(status.node_id),
        epoch=status.leadership.term,
        high_watermark=Offset(status.commit_index + 1),
        voters=tuple(map(described, voters)),
        observers=tuple(map(described, status.membership.learners)),
        nodes=tuple(
            QuorumNode(broker.node_id, broker.host, broker.port)
            for member in voters
            if (broker := tables.brokers.get(node_of(member))) is not None
        ),
    )
