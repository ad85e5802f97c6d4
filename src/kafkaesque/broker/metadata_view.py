"""Topics and partitions as clients see them, for the APIs that describe them.

A node knows every topic by the controller's tables and serves the partitions that are open on it;
between the two lies the moment in which a new topic's files are made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from kafkaesque.broker.context import Context
from kafkaesque.cluster.tables import Topic
from kafkaesque.model.errors import ErrorCode
from kafkaesque.model.ids import NO_EPOCH, NodeId

OPERATIONS_NOT_ASKED: Final = -(2**31)
# Bits of org.apache.kafka.common.acl.AclOperation. Without an authorizer all are allowed:
# READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS of a topic;
# CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE of the
# cluster.
TOPIC_OPERATIONS: Final = 0x0DF8
CLUSTER_OPERATIONS: Final = 0x1FA0


class PartitionState(NamedTuple):
    """Who serves a partition now. `replicas` are all in sync, as long as a node stands alone."""

    error_code: ErrorCode
    leader_id: int
    leader_epoch: int
    replicas: list[int]


def partition_states(context: Context, topic: Topic) -> list[PartitionState]:
    """Every partition of `topic` in order; one that is still being opened has no leader yet.

    Partitions in the same state share one object: a broker may have thousands, and every client
    asks for them every few minutes.
    """
    served = context.partitions.of_topic(topic.name)[: topic.partition_count]
    epochs: list[int] = [partition.leader_epoch for partition in served]
    epochs += [NO_EPOCH] * (topic.partition_count - len(served))
    node_id = context.identity.node_id
    distinct: dict[tuple[int, Sequence[NodeId]], PartitionState] = {}
    states = []
    for key in zip(epochs, topic.replicas, strict=True):
        state = distinct.get(key)
        if state is None:
            epoch, replicas = key
            if epoch == NO_EPOCH:
                state = PartitionState(ErrorCode.LEADER_NOT_AVAILABLE, -1, epoch, list(replicas))
            else:
                state = PartitionState(ErrorCode.NONE, node_id, epoch, list(replicas))
            distinct[key] = state
        states.append(state)
    return states
