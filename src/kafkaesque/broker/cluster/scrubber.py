"""Looks at what lies on the disk, and has damaged batches replaced by a peer's.

Disks forget. Every batch is checked when it is read; those that nobody reads are looked at here, a
little at a time, for ever. What is damaged is never cut and never served: it is fetched again from
another member of its group, compared with what the log knows of it, and written in its place.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator

import msgspec

from kafkaesque.broker.raft.types import Entry, LogIndex, Role
from kafkaesque.broker.replication.peer_calls import PeerError
from kafkaesque.broker.replication.replica import Replica
from kafkaesque.broker.replication.replica_set import ReplicaSet
from kafkaesque.model.errors import CorruptMessage, KafkaError, OffsetOutOfRange, ProtocolError
from kafkaesque.model.ids import GroupId, NodeId, node_of
from kafkaesque.model.limits import MIB

logger = logging.getLogger(__name__)

STEP_BYTES = MIB
"""Looked at in one step, on the event loop: about a millisecond."""

Call = Callable[[NodeId, bytes], Awaitable[bytes]]


class _Wanted(msgspec.Struct, frozen=True, array_like=True):
    """One batch, by its place in its group's log."""

    group: int
    index: int
    term: int


_decoder = msgspec.msgpack.Decoder(_Wanted)


class Scrubber:
    """`call` asks another broker for a batch."""

    __slots__ = (
        "_call",
        "_member",
        "_places",
        "_replicas",
        "_round",
        "damaged_total",
        "repaired_total",
    )

    def __init__(self, replicas: ReplicaSet, call: Call) -> None:
        self._replicas = replicas
        self._call = call
        self._member = replicas.member
        self._places: dict[GroupId, LogIndex] = {}
        """How far each group was looked at in this round."""
        self._round: Iterator[Replica] = iter(())
        self.damaged_total = 0
        self.repaired_total = 0

    async def step(self) -> None:
        """Look at a little more, of one group after the other."""
        replica = next(self._round, None)
        if replica is None:
            replicas = tuple(self._replicas)
            self._round = iter(replicas)
            places = self._places
            self._places = {one.group: places.get(one.group, LogIndex(0)) for one in replicas}
        elif self._is_here(replica):
            place = self._places[replica.group]
            self._places[replica.group] = await self._look(replica, place)

    async def look_again(self) -> None:
        """At the groups in which somebody has met damage, whole, now."""
        for replica in self._replicas.take_damaged():
            place = LogIndex(0)
            while self._is_here(replica):
                following = await self._look(replica, place)
                if following <= place:
                    break
                place = following

    def _is_here(self, replica: Replica) -> bool:
        """Not removed since; the files of one that is are closed, and look like damage."""
        return self._replicas.get(replica.group) is replica

    async def _look(self, replica: Replica, place: LogIndex) -> LogIndex:
        """The index to go on at; 0 when the end was reached."""
        found = replica.entries.verify(place, STEP_BYTES)
        for entry in found.damaged:
            self.damaged_total += 1
            await self._repair(replica, entry)
        # Not "nothing was left to look at": of a log that is written to all the time there always is.
        has_more = found.next_index <= replica.entries.last_index
        return found.next_index if found.size_bytes and has_more else LogIndex(0)

    async def _repair(self, replica: Replica, entry: Entry) -> None:
        body = msgspec.msgpack.encode(_Wanted(replica.group, entry.index, entry.term))
        for member in replica.membership.nodes:
            if node_of(member) == node_of(self._member):
                continue  # we, or an earlier life of ours that is about to be removed
            try:
                data = await self._call(node_of(member), body)
                if not self._is_here(replica):
                    return
                if data:
                    replica.entries.repair(entry, data)
                    self.repaired_total += 1
                    logger.warning(
                        "entry %d of group %d was damaged and is repaired from node %d",
                        *(entry.index, replica.group, node_of(member)),
                    )
                    return
            except OffsetOutOfRange:
                return  # Retention, or a cut, was quicker.
            except (PeerError, KafkaError) as error:
                logger.info("no repair from node %d: %s", node_of(member), error)
        logger.error("entry %d of group %d is damaged on this node", entry.index, replica.group)
        self._let_others_lead(replica, entry)

    def _let_others_lead(self, replica: Replica, entry: Entry) -> None:
        """A leader that cannot send an entry which is not committed keeps its group from ever
        committing anything again: it beats, so nobody else stands, and no peer has what it lacks.
        Others can do without that entry, and what they lead takes its place here."""
        if replica.standing.role is Role.LEADER and not replica.has_committed(entry.index):
            logger.warning("group %d: resigning, for what it waits for is damaged", replica.group)
            replica.resign()

    def serve(self, body: bytes) -> bytes:
        """A peer wants a batch that is damaged on its disk; empty if ours is no better."""
        try:
            wanted = _decoder.decode(body)
        except msgspec.MsgspecError as error:
            raise ProtocolError(f"request for a batch: {error}") from None
        replica, index = self._replicas.get(GroupId(wanted.group)), LogIndex(wanted.index)
        if replica is None or not replica.has_committed(index):
            return b""
        entries = replica.entries
        if entries.term_at(index) != wanted.term:
            return b""
        try:
            (data,) = entries.load(entries.entries_between(index, index, 0))
        except CorruptMessage:
            return b""
        return b"" if data is None else bytes(data)
