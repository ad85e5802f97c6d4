"""Whom to ask instead: told with the refusal, it spares a client a Metadata request (KIP-951)."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from kafkaesque.broker.cluster.rules.topology import Broker
from kafkaesque.broker.server.context import Context
from kafkaesque.model.errors import ErrorCode
from kafkaesque.model.ids import NO_TOPIC_ID, LeaderEpoch, TopicId


class LeaderHint(NamedTuple):
    broker: Broker
    epoch: LeaderEpoch


def leader_hint(
    context: Context, code: int, name: str, topic_id: UUID, index: int
) -> LeaderHint | None:
    """The leader of a partition, by the topic's id or else its name, as far as this broker knows
    one that is up and `code` is an answer that it helps with."""
    if code not in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH):
        return None
    cluster = context.cluster
    if topic_id != NO_TOPIC_ID:
        topic = cluster.tables.by_id.get(TopicId(topic_id))
    else:
        topic = cluster.tables.by_name.get(name)
    told = cluster.announced(topic, index)
    if told is None:
        return None
    if code == ErrorCode.NOT_LEADER_OR_FOLLOWER and told.node_id == cluster.node_id:
        return None  # It has just been voted out, or is not certain any more.
    broker = cluster.tables.brokers.get(told.node_id)
    return None if broker is None else LeaderHint(broker, told.epoch)
