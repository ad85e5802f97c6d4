"""Verifies the batches on disk in the background and repairs damaged ones from a peer.

Disks lose data. Every batch is checked when it is read; batches that no client reads are checked
here, a little at a time, in an endless loop. A damaged batch is never truncated and never served: it is fetched from
another member of its group, compared with the log's own index entry, and written in place.
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
"""Verified in one step, on the event loop: about a millisecond."""

Call = Callable[[NodeId, bytes], Awaitable[bytes]]


class _BatchRequest(msgspec.Struct, frozen=True, array_like=True):
    """Requests one batch from a peer, by its position in its group's log."""

    group: int
    index: int
    term: int


_decoder = msgspec.msgpack.Decoder(_BatchRequest)


class Scrubber:
    """`call` requests a batch from another broker."""

    __slots__ = (
        "_call",
        "_member",
        "_positions",
        "_replicas",
        "_round",
        "damaged_total",
        "repaired_total",
    )

    def __init__(self, replicas: ReplicaSet, call: Call) -> None:
        self._replicas = replicas
        self._call = call
        self._member = replicas.member
        self._positions: dict[GroupId, LogIndex] = {}
        """How far each group is verified in this round."""
        self._round: Iterator[Replica] = iter(())
        self.damaged_total = 0
        self.repaired_total = 0

    async def step(self) -> None:
        """Verifies the next STEP_BYTES of the next group."""
        replica = next(self._round, None)
        if replica is None:
            replicas = tuple(self._replicas)
            self._round = iter(replicas)
            known = self._positions
            self._positions = {one.group: known.get(one.group, LogIndex(0)) for one in replicas}
        elif self._is_open(replica):
            position = self._positions[replica.group]
            self._positions[replica.group] = await self._verify(replica, position)

    async def check_damaged(self) -> None:
        """Verifies, completely and now, the groups in which a read has found damage."""
        for replica in self._replicas.take_damaged():
            position = LogIndex(0)
            while self._is_open(replica):
                following = await self._verify(replica, position)
                if following <= position:
                    break
                position = following

    def _is_open(self, replica: Replica) -> bool:
        """False if it was removed meanwhile: its files are closed, which looks like damage."""
        return self._replicas.get(replica.group) is replica

    async def _verify(self, replica: Replica, position: LogIndex) -> LogIndex:
        """Returns the index to continue at; 0 at the end of the log."""
        found = replica.entries.verify(position, STEP_BYTES)
        for entry in found.damaged:
            self.damaged_total += 1
            await self._repair(replica, entry)
        # Compared with the current end: a log that is written to all the time always has more.
        has_more = found.next_index <= replica.entries.last_index
        return found.next_index if found.size_bytes and has_more else LogIndex(0)

    async def _repair(self, replica: Replica, entry: Entry) -> None:
        body = msgspec.msgpack.encode(_BatchRequest(replica.group, entry.index, entry.term))
        for member in replica.membership.nodes:
            if node_of(member) == node_of(self._member):
                continue  # this node, or a former incarnation that is about to be removed
            try:
                data = await self._call(node_of(member), body)
                if not self._is_open(replica):
                    return
                if data:
                    replica.entries.repair(entry, data)
                    self.repaired_total += 1
                    logger.warning(
                        "repaired damaged entry %d of group %d from node %d",
                        *(entry.index, replica.group, node_of(member)),
                    )
                    return
            except OffsetOutOfRange:
                return  # retention or a truncation removed it meanwhile
            except (PeerError, KafkaError) as error:
                logger.info("node %d could not supply a repair: %s", node_of(member), error)
        logger.error(
            "entry %d of group %d is damaged and no peer could repair it",
            entry.index,
            replica.group,
        )
        self._resign_if_blocked(replica, entry)

    def _resign_if_blocked(self, replica: Replica, entry: Entry) -> None:
        """A leader that cannot send an uncommitted entry blocks its group for ever: its heartbeats
        prevent an election, and no peer has the entry. Another leader does not need that entry, and
        overwrites it here."""
        if replica.leadership.role is Role.LEADER and not replica.has_committed(entry.index):
            logger.warning(
                "group %d: resigned, since an uncommitted entry is damaged", replica.group
            )
            replica.resign()

    def serve(self, body: bytes) -> bytes:
        """Serves a batch that is damaged on a peer's disk; empty if it is missing or damaged here."""
        try:
            wanted = _decoder.decode(body)
        except msgspec.MsgspecError as error:
            raise ProtocolError(f"batch request: {error}") from None
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
