"""Types for numbers that must not be mixed.

Terms used everywhere: an *offset* counts records in a partition, a *position* counts bytes in a file,
an *index* counts entries of a Raft log. See docs/GLOSSARY.md for the rest.
"""

from __future__ import annotations

from typing import NamedTuple, NewType
from uuid import UUID

NodeId = NewType("NodeId", int)
Offset = NewType("Offset", int)
LeaderEpoch = NewType("LeaderEpoch", int)
PartitionIndex = NewType("PartitionIndex", int)
ProducerId = NewType("ProducerId", int)
ProducerEpoch = NewType("ProducerEpoch", int)
TimestampMs = NewType("TimestampMs", int)
"""Wall-clock milliseconds since the Unix epoch; -1 if a record has none."""
TopicId = NewType("TopicId", UUID)
GroupId = NewType("GroupId", int)
"""One Raft group. Numbers below FIRST_PARTITION_GROUP are system groups, the others partitions."""
MemberId = NewType("MemberId", int)
"""A Raft group member: a broker with one particular disk, see `member_id`."""

NO_OFFSET = Offset(-1)
NO_EPOCH = LeaderEpoch(-1)
NO_TIMESTAMP = TimestampMs(-1)
NO_PRODUCER = ProducerId(-1)
NO_TOPIC_ID = TopicId(UUID(int=0))

CONTROLLER_GROUP = GroupId(0)
COORDINATION_GROUP = GroupId(1)
FIRST_PARTITION_GROUP = GroupId(16)

_NODE_BITS = 24
NODE_ID_MAX = NodeId((1 << _NODE_BITS) - 1)


def member_id(node_id: NodeId, generation: int) -> MemberId:
    """The member id of a broker with its `generation`-th disk, counted from 0.

    A broker whose disk was wiped has lost its votes and acknowledgements. Under its old id it could
    help elect a leader that lacks committed entries (KIP-853 has directory ids for this), so it
    rejoins as a new member. With the first disk, node id and member id are the same number.
    """
    return MemberId(generation << _NODE_BITS | node_id)


def node_of(member: MemberId) -> NodeId:
    return NodeId(member & NODE_ID_MAX)


def generation_of(member: MemberId) -> int:
    return member >> _NODE_BITS


class ProducerIdentity(NamedTuple):
    """A producer id and the epoch of its current owner."""

    producer_id: ProducerId
    epoch: ProducerEpoch


class TopicPartition(NamedTuple):
    """One partition, by topic name and partition index."""

    topic: str
    partition: PartitionIndex

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
