"""The current leader, returned with an error, so that clients need no Metadata request
(KIP-951)."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from kafkaesque.broker.cluster.rules.topology import RegisteredBroker
from kafkaesque.broker.server.context import Context
from kafkaesque.model.errors import ErrorCode
from kafkaesque.model.ids import NO_TOPIC_ID, LeaderEpoch, TopicId


class LeaderHint(NamedTuple):
    broker: RegisteredBroker
    epoch: LeaderEpoch


def leader_hint(
    context: Context, code: int, name: str, topic_id: UUID, index: int
) -> LeaderHint | None:
    """Returns the leader of a partition, by the topic's id or else its name. None unless this
    broker has the announcement of a leader that is up, and `code` is an error for which it helps."""
    if code not in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH):
        return None
    cluster = context.cluster
    if topic_id != NO_TOPIC_ID:
        topic = cluster.tables.by_id.get(TopicId(topic_id))
    else:
        topic = cluster.tables.by_name.get(name)
    leader = cluster.announced(topic, index)
    if leader is None:
        return None
    if code == ErrorCode.NOT_LEADER_OR_FOLLOWER and leader.node_id == cluster.node_id:
        return None  # It has just lost leadership, or is no longer certain of it.
    broker = cluster.tables.brokers.get(leader.node_id)
    return None if broker is None else LeaderHint(broker, leader.epoch)
