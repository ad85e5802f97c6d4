"""The controller's Raft group as DescribeQuorum tells of it. Values only."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from kafkaesque.model.ids import NO_OFFSET, NO_TIMESTAMP, NO_TOPIC_ID, NodeId, Offset, TimestampMs


@dataclass(frozen=True, slots=True)
class QuorumReplica:
    """One member. What is unknown has the value that Kafka has for it."""

    node_id: NodeId
    directory_id: UUID = NO_TOPIC_ID
    log_end_offset: Offset = NO_OFFSET
    last_fetch_ms: TimestampMs = NO_TIMESTAMP
    """When it last asked or answered, by the leader's clock."""
    last_caught_up_ms: TimestampMs = NO_TIMESTAMP
    """When it last had all that the leader had."""


@dataclass(frozen=True, slots=True)
class QuorumNode:
    """Where a voter is reached."""

    node_id: NodeId
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class QuorumInfo:
    leader_id: NodeId
    epoch: int
    high_watermark: Offset
    """Kafka counts entries of the log here, and so do we."""
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...] = ()
    nodes: tuple[QuorumNode, ...] = ()
