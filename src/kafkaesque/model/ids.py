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

NO_OFFSET = Offset(-1)
NO_EPOCH = LeaderEpoch(-1)
NO_TIMESTAMP = TimestampMs(-1)
NO_PRODUCER = ProducerId(-1)
NO_TOPIC_ID = TopicId(UUID(int=0))


class TopicPartition(NamedTuple):
    """One partition, by the names that clients use."""

    topic: str
    partition: PartitionIndex

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
