"""Changes of leadership: on request (ElectLeaders), and when a broker is lost.

A lost broker is also named to clients for a while longer: see `RecentlyLost`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

import msgspec

from kafkaesque.broker.cluster.leaders import Leaders
from kafkaesque.broker.cluster.rules.errors import (
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    PreferredLeaderNotAvailable,
)
from kafkaesque.broker.cluster.rules.tables import Tables
from kafkaesque.broker.raft.types import Refused
from kafkaesque.broker.replication.peer_calls import PeerError
from kafkaesque.broker.replication.replica_set import ReplicaSet
from kafkaesque.broker.replication.succession import CallLater, Succession
from kafkaesque.model.errors import KafkaError, ProtocolError, UnknownTopicOrPartition
from kafkaesque.model.ids import GroupId, MemberId, NodeId, PartitionIndex, TopicPartition

ELECTION_SECONDS = 3.0

NAMED_SECONDS: Final = 30.0
"""How long a lost broker is still named to clients. Longer than a restart takes."""

Call = Callable[[NodeId, bytes], Awaitable[bytes]]


class _HandOver(msgspec.Struct, frozen=True, array_like=True):
    """Requests that the leader of `group` transfer leadership to `member`."""

    group: int
    member: int


_decoder = msgspec.msgpack.Decoder(_HandOver)


class RecentlyLost:
    """The brokers that were lost within the last NAMED_SECONDS.

    Apache Kafka names a broker that died until its session has timed out, and clients rely on that:
    librdkafka treats a broker missing from a metadata response as removed, and a client that waits
    for it (as its group coordinator, say) waits for ever (librdkafka issue 5511).
    """

    __slots__ = ("_call_later", "_counts")

    def __init__(self, call_later: CallLater) -> None:
        self._call_later = call_later
        self._counts: Counter[NodeId] = Counter()
        """Recent losses of each broker: the expiry of one must not end the time of a later one."""

    def __contains__(self, node: NodeId) -> bool:
        return node in self._counts

    def add(self, node: NodeId) -> None:
        self._counts[node] += 1
        self._call_later(NAMED_SECONDS, lambda: self._expire(node))

    def _expire(self, node: NodeId) -> None:
        self._counts[node] -= 1
        if not self._counts[node]:
            del self._counts[node]


class Elections:
    """`call` sends a request to hand over a group to a broker, which may be this one."""

    __slots__ = (
        "_call",
        "_is_up",
        "_leaders",
        "_replicas",
        "_succession",
        "_tables",
        "recently_lost",
    )

    def __init__(
        self,
        tables: Tables,
        leaders: Leaders,
        replicas: ReplicaSet,
        is_up: Callable[[NodeId], bool],
        call: Call,
        call_later: CallLater,
    ) -> None:
        self._tables = tables
        self._leaders = leaders
        self._replicas = replicas
        self._is_up = is_up
        self._call = call
        self._succession = Succession(replicas, is_up, call_later)
        self.recently_lost = RecentlyLost(call_later)

    def lost(self, node: NodeId) -> None:
        """A broker is gone: has the groups that it led elect another leader."""
        self.recently_lost.add(node)
        self._succession.lost(node)

    async def elect(
        self, partitions: Sequence[TopicPartition] | None, *, preferred: bool
    ) -> Mapping[TopicPartition, KafkaError | None]:
        """Tries to move each partition (all, if None) to its preferred leader, or to any leader if
        not `preferred`. Returns None for each success."""
        names = self._all() if partitions is None else partitions
        results = await asyncio.gather(
            *(self._elect_one(name, preferred=preferred) for name in names)
        )
        return dict(zip(names, results, strict=True))

    def _all(self) -> list[TopicPartition]:
        return [
            TopicPartition(topic.name, PartitionIndex(index))
            for topic in self._tables.by_name.values()
            for index in range(topic.partition_count)
        ]

    async def _elect_one(self, name: TopicPartition, *, preferred: bool) -> KafkaError | None:
        topic = self._tables.by_name.get(name.topic)
        if topic is None:
            return UnknownTopicOrPartition(f"No such topic as {name.topic}")
        assignment = topic.partitions[name.partition]
        leader = self._leaders.get(assignment.group_id)
        if leader is None or not self._is_up(leader.node_id):
            # Raft elects a leader as soon as it safely can; there is no unclean election.
            return EligibleLeadersNotAvailable()
        first = assignment.wanted[0]
        if not preferred or leader.node_id == first:
            return ElectionNotNeeded()
        if not self._is_up(first):
            return PreferredLeaderNotAvailable()
        (member,) = self._tables.members([first])
        body = msgspec.msgpack.encode(_HandOver(assignment.group_id, member))
        try:
            await self._call(leader.node_id, body)
            async with asyncio.timeout(ELECTION_SECONDS):
                await self._leaders.wait_for_leader(assignment.group_id, first)
        except (PeerError, TimeoutError):
            return PreferredLeaderNotAvailable()
        return None

    def hand_over(self, body: bytes) -> bytes:
        """Serves HAND_OVER, as the leader of a group. Returns the reason if Raft refused."""
        try:
            wanted = _decoder.decode(body)
        except msgspec.MsgspecError as error:
            raise ProtocolError(f"request to hand over: {error}") from None
        replica = self._replicas.get(GroupId(wanted.group))
        if replica is not None:
            try:
                replica.transfer_leadership(MemberId(wanted.member))
            except Refused as refused:
                return str(refused).encode()
        return b""
