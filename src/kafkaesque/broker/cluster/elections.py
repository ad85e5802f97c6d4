"""Leaders change here: on request, by whoever leads a group now, and when a node is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec

from kafkaesque.broker.cluster.departures import Departures
from kafkaesque.broker.cluster.leaders import Leaders
from kafkaesque.broker.cluster.rules.refusals import (
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

Call = Callable[[NodeId, bytes], Awaitable[bytes]]


class _HandOver(msgspec.Struct, frozen=True, array_like=True):
    """To the leader of `group`: let `member` lead."""

    group: int
    member: int


_decoder = msgspec.msgpack.Decoder(_HandOver)


class Elections:
    """`call` asks another broker, or this one, to hand a group over."""

    __slots__ = (
        "_call",
        "_is_up",
        "_leaders",
        "_replicas",
        "_succession",
        "_tables",
        "departures",
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
        self.departures = Departures(call_later)

    def lost(self, node: NodeId) -> None:
        """A node is gone: have the groups that it led elect another leader."""
        self.departures.lost(node)
        self._succession.lost(node)

    async def elect(
        self, partitions: Sequence[TopicPartition] | None, *, preferred: bool
    ) -> Mapping[TopicPartition, KafkaError | None]:
        """None for each partition that got the leader it should have."""
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
        told = self._leaders.of(assignment.group_id)
        if told is None or not self._is_up(told.node_id):
            # The group elects by itself as soon as it can; nobody may hurry it.
            return EligibleLeadersNotAvailable()
        first = assignment.wanted[0]
        if not preferred or told.node_id == first:
            return ElectionNotNeeded()
        if not self._is_up(first):
            return PreferredLeaderNotAvailable()
        (member,) = self._tables.members([first])
        body = msgspec.msgpack.encode(_HandOver(assignment.group_id, member))
        try:
            await self._call(told.node_id, body)
            async with asyncio.timeout(ELECTION_SECONDS):
                await self._leaders.leads(assignment.group_id, first)
        except (PeerError, TimeoutError):
            return PreferredLeaderNotAvailable()
        return None

    def hand_over(self, body: bytes) -> bytes:
        """This broker is asked, as the leader of a group."""
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
