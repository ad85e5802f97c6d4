"""Topics and partitions as clients see them, for the APIs that describe them.

A node knows every topic by the controller's tables and serves the partitions that are open on it;
between the two lies the moment in which a new topic's files are made.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from typing import Final, NamedTuple

from kafkaesque.broker.context import Context
from kafkaesque.cluster.tables import Topic
from kafkaesque.model.errors import ErrorCode
from kafkaesque.model.ids import NO_EPOCH

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
    partition_index: int
    leader_id: int
    leader_epoch: int
    replicas: list[int]


def partition_states(context: Context, topic: Topic) -> Iterator[PartitionState]:
    """Every partition of `topic` in order; one that is still being opened has no leader yet."""
    node_id = context.identity.node_id
    served = context.partitions.of_topic(topic.name)[: topic.partition_count]
    for index, (replicas, partition) in enumerate(zip_longest(topic.replicas, served)):
        if partition is None:
            yield PartitionState(
                ErrorCode.LEADER_NOT_AVAILABLE, index, -1, NO_EPOCH, list(replicas)
            )
        else:
            yield PartitionState(
                ErrorCode.NONE, index, node_id, partition.leader_epoch, list(replicas)
            )
