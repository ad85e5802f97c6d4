"""Topics and partitions as clients see them, for the APIs that describe them.

Topics come from the controller's tables, leaders from their own announcements. A new topic has no
leaders until they are elected.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from kafkaesque.broker.cluster.rules.topology import Topic
from kafkaesque.broker.server.context import Context
from kafkaesque.model.errors import ErrorCode
from kafkaesque.model.ids import NO_EPOCH, NodeId

OPERATIONS_NOT_ASKED: Final = -(2**31)
# Bits of org.apache.kafka.common.acl.AclOperation. Without an authorizer all are allowed:
# READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS of a topic;
# CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE of the
# cluster.
TOPIC_OPERATIONS: Final = 0x0DF8
CLUSTER_OPERATIONS: Final = 0x1FA0
NO_LEADER: Final = -1


class PartitionLeadership(NamedTuple):
    """A partition's current leader and replicas."""

    error_code: ErrorCode
    leader_id: int
    leader_epoch: int
    replicas: Sequence[int]
    in_sync: Sequence[int]


def partition_states(context: Context, topic: Topic) -> list[PartitionLeadership]:
    """Returns the state of every partition of `topic`, in order. A leader that is unknown or down
    is left out.

    Partitions in the same state share one object: a broker may have thousands, and every client
    requests them every few minutes.
    """
    cluster = context.cluster
    distinct: dict[object, PartitionLeadership] = {}
    states = []
    for assignment in topic.partitions:
        announced = cluster.leaders.get(assignment.group_id)
        leader, epoch = NO_LEADER, NO_EPOCH
        in_sync: tuple[NodeId, ...] = ()
        if announced is not None:
            epoch = announced.epoch
            if cluster.is_up(announced.node_id):
                leader, in_sync = int(announced.node_id), announced.in_sync
        key = leader, epoch, in_sync, assignment.all_replicas
        state = distinct.get(key)
        if state is None:
            code = ErrorCode.LEADER_NOT_AVAILABLE if leader == NO_LEADER else ErrorCode.NONE
            state = PartitionLeadership(code, leader, epoch, assignment.all_replicas, in_sync)
            distinct[key] = state
        states.append(state)
    return states
