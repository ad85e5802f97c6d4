"""Types for the numbers that must not be mixed.

Words, everywhere: an *offset* counts records in a partition, a *position* counts bytes in a file,
an *index* counts entries of a Raft log. docs/GLOSSARY.md has the rest.
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
"""Wall-clock milliseconds since the Unix epoch; -1 where a record carries none."""
TopicId = NewType("TopicId", UUID)
GroupId = NewType("GroupId", int)
"""One Raft group. Small numbers are the platform's own, the others are partitions."""
MemberId = NewType("MemberId", int)
"""One life of one broker's disk, as Raft groups know it: see `member_id`."""

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
    """The member that a broker is with its `generation`-th disk, counted from 0.

    A broker whose disk was wiped has forgotten its votes and acknowledgements: under its old name
    it could elect a leader that lacks what was committed (KIP-853 has directory ids for this). So
    it comes back as another member. With the first disk the two ids are the same number.
    """
    return MemberId(generation << _NODE_BITS | node_id)


def node_of(member: MemberId) -> NodeId:
    return NodeId(member & NODE_ID_MAX)


def generation_of(member: MemberId) -> int:
    return member >> _NODE_BITS


class TopicPartition(NamedTuple):
    """One partition, by the names that clients use."""

    topic: str
    partition: PartitionIndex

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
