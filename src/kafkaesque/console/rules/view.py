"""A snapshot of a cluster: brokers, topics, partitions, consumer groups and the quorum.

Plain values, created by `cluster.sampler` and read by everything else. A number is None if this
Kafka does not report it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kafkaesque.console.rules.lag import STEADY, GroupStatus, LagTrend, LagWindow, TimeLag

PartitionKey = tuple[str, int]
"""Topic name and partition index."""


@dataclass(slots=True)
class ConsoleBrokerView:
    id: int
    host: str
    port: int
    rack: str | None = None
    is_up: bool = True
    leads: int = 0
    replicas: int = 0
    out_of_sync: int = 0
    """Replicas on this broker that are not in the ISR."""
    size_bytes: int | None = None
    disk_total_bytes: int | None = None
    disk_free_bytes: int | None = None

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(slots=True)
class PartitionView:
    index: int
    leader: int
    """-1 if there is none."""
    epoch: int
    """Leader epoch; on Kafkaesque, the Raft term."""
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...] = ()
    start: int | None = None
    end: int | None = None
    size_bytes: int | None = None
    follower_lag: Mapping[int, int] = field(default_factory=dict)
    """Records that each follower still has to copy, by broker id."""

    @property
    def records(self) -> int | None:
        if self.start is None or self.end is None:
            return None
        return max(0, self.end - self.start)

    @property
    def is_under_replicated(self) -> bool:
        return len(self.isr) < len(self.replicas)


@dataclass(slots=True)
class TopicView:
    name: str
    id: str
    is_internal: bool
    partitions: list[PartitionView]
    rate: float | None = None
    """Records appended per second."""
    retention_ms: int | None = None
    retention_bytes: int | None = None
    cleanup: str | None = None
    oldest_ms: int | None = None
    """Timestamp of the oldest record."""
    groups: dict[str, int] = field(default_factory=dict)
    """Lag of each group with a committed offset in this topic."""

    @property
    def records(self) -> int | None:
        counts = [partition.records for partition in self.partitions]
        return None if None in counts else sum(count or 0 for count in counts)

    @property
    def size_bytes(self) -> int | None:
        sizes = [partition.size_bytes for partition in self.partitions]
        return None if None in sizes else sum(size or 0 for size in sizes)

    def retention_left_ms(self, now_ms: float) -> int | None:
        """Time until the oldest record expires; None if retention by time does not apply."""
        deletes = "delete" in (self.cleanup or "delete")
        if self.oldest_ms is None or not deletes or (self.retention_ms or -1) < 0:
            return None
        return max(0, round(self.oldest_ms + (self.retention_ms or 0) - now_ms))

    @property
    def leaderless(self) -> int:
        return sum(1 for partition in self.partitions if partition.leader < 0)

    @property
    def under_replicated(self) -> int:
        return sum(1 for partition in self.partitions if partition.is_under_replicated)

    @property
    def skew(self) -> float | None:
        """Records in the largest partition divided by the average; 1 means an even distribution."""
        counts = [partition.records or 0 for partition in self.partitions]
        return max(counts) * len(counts) / total if (total := sum(counts)) else None


@dataclass(slots=True)
class GroupOffset:
    """A group's committed offset in one partition."""

    topic: str
    partition: int
    committed: int
    end: int | None
    status: GroupStatus = GroupStatus.OK
    time_lag: TimeLag | None = None
    phantom: int = 0
    """Unread offsets that hold no record for the consumer; see `rules.phantom_lag`."""

    @property
    def lag(self) -> int | None:
        return None if self.end is None else max(0, self.end - self.committed - self.phantom)


@dataclass(slots=True)
class GroupView:
    name: str
    state: str
    kind: str
    protocol_type: str
    coordinator: int
    members: int | None = None
    offsets: list[GroupOffset] = field(default_factory=list)
    status: GroupStatus = GroupStatus.IDLE
    trend: LagTrend = STEADY
    catch_up_s: float | None = None
    windows: dict[PartitionKey, LagWindow] = field(default_factory=dict)

    @property
    def lag(self) -> int:
        return sum(item.lag or 0 for item in self.offsets)

    @property
    def time_lag(self) -> TimeLag:
        """That of the partition that lags most."""
        found = [item.time_lag for item in self.offsets if item.time_lag is not None]
        return max(found, default=TimeLag(0.0, True))

    @property
    def topics(self) -> list[str]:
        return sorted({item.topic for item in self.offsets})

    @property
    def has_members(self) -> bool:
        if self.members is not None:
            return self.members > 0
        return self.state.lower() not in ("empty", "dead")


@dataclass(slots=True)
class QuorumMember:
    id: int
    role: str
    """leader, voter or observer."""
    end_offset: int
    lag: int | None
    last_caught_up_ms: int


@dataclass(slots=True)
class QuorumView:
    """The controller's Raft group."""

    leader: int
    epoch: int
    high_watermark: int
    members: list[QuorumMember]


@dataclass(slots=True)
class ConsoleClusterView:
    """The whole cluster. While `error` is set, the cluster does not answer and the rest is stale."""

    cluster_id: str | None = None
    controller: int = -1
    brokers: dict[int, ConsoleBrokerView] = field(default_factory=dict)
    topics: dict[str, TopicView] = field(default_factory=dict)
    groups: dict[str, GroupView] = field(default_factory=dict)
    quorum: QuorumView | None = None
    sampled_s: float = 0.0
    error: str | None = None

    @property
    def partition_count(self) -> int:
        return sum(len(topic.partitions) for topic in self.topics.values())


Document = dict[str, Any]
"""A JSON object, as the API returns it and the pages render it."""
