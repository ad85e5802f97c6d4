"""Copies the compacted part of a log from the leader to a replica that lacks some of it.

Batches that the log cleaner has rewritten are no longer Raft entries, so they cannot be sent as
appends; other Raft systems would call them the contents of a snapshot. When the leader sends a
snapshot with such a part, the replica first fetches all of it, batch by batch, into a log next to
its own (`staging`), and passes the snapshot to Raft only then. Until then it votes and answers as
before. ADR 10 has the reasons.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from kafkaesque.broker.raft.messages import InstallSnapshot
from kafkaesque.broker.replication.entry_log import kept_range
from kafkaesque.broker.replication.peer_calls import PeerError
from kafkaesque.broker.replication.replica import Replica
from kafkaesque.broker.replication.replica_set import ReplicaSet
from kafkaesque.broker.replication.staging import Incoming
from kafkaesque.model.errors import KafkaError, OffsetOutOfRange, ProtocolError
from kafkaesque.model.ids import GroupId, NodeId, Offset, node_of
from kafkaesque.model.limits import MIB

logger = logging.getLogger(__name__)

_STEP_BYTES: Final = MIB
_COPIED_SECONDS: Final = 30.0
"""A log is not cleaned for this long after a part of it was sent to a replica: the parts must fit
together."""
_NEXT: Final = struct.Struct(">q")

Call = Callable[[NodeId, bytes], Awaitable[bytes]]


class _Wanted(msgspec.Struct, frozen=True, array_like=True):
    """A request for batches of a group's log in [`offset`, `end_offset`)."""

    group: int
    offset: int
    end_offset: int


_decoder = msgspec.msgpack.Decoder(_Wanted)


class PrefixCopies:
    """Fetches and serves compacted parts of logs. `call` requests batches from another broker."""

    __slots__ = ("_call", "_replicas", "_tasks", "copied_bytes")

    def __init__(self, replicas: ReplicaSet, call: Call) -> None:
        self._replicas = replicas
        self._call = call
        self._tasks: dict[GroupId, asyncio.Task[None]] = {}
        self.copied_bytes = 0

    def fetch(self, replica: Replica, message: InstallSnapshot) -> None:
        """Fetches the batches that the snapshot refers to, then passes the snapshot to the replica.

        One fetch per group at a time, and a running one is never replaced: if its leader is gone
        its calls fail, and the new leader keeps sending its own snapshot.
        """
        if replica.group not in self._tasks:
            task = asyncio.get_running_loop().create_task(self._fetch(replica, message))
            self._tasks[replica.group] = task
            task.add_done_callback(lambda done: self._ended(replica.group, done))

    def _ended(self, group: GroupId, task: asyncio.Task[None]) -> None:
        del self._tasks[group]
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error

    async def _fetch(self, replica: Replica, message: InstallSnapshot) -> None:
        entries = replica.entries
        first_offset, end_offset = kept_range(message.snapshot)
        logger.info("group %d: fetching offsets [%d, %d)", replica.group, first_offset, end_offset)
        log = entries.log
        incoming = await asyncio.to_thread(
            Incoming, str(log.directory), log.config, log.files, first_offset
        )
        is_whole = False
        try:
            await self._copy(replica, message, incoming)
            await asyncio.to_thread(incoming.finish, end_offset)
            is_whole = self._replicas.get(replica.group) is replica
        except (KafkaError, PeerError) as error:
            logger.warning(
                "group %d: %s; the leader will send the snapshot again", replica.group, error
            )
        finally:
            if not is_whole:
                await asyncio.to_thread(incoming.discard)
        if is_whole:
            entries.note_staged(message.snapshot)
            replica.step(message)

    async def _copy(self, replica: Replica, message: InstallSnapshot, incoming: Incoming) -> None:
        offset, end_offset = kept_range(message.snapshot)
        while offset < end_offset:
            if self._replicas.get(replica.group) is not replica:
                raise OffsetOutOfRange(f"group {replica.group} was removed from this node")
            wanted = msgspec.msgpack.encode(_Wanted(replica.group, offset, end_offset))
            answer = await self._call(node_of(message.sender), wanted)
            if len(answer) <= _NEXT.size:
                raise OffsetOutOfRange(f"the leader no longer has offset {offset}")
            data = answer[_NEXT.size :]
            self.copied_bytes += len(data)
            offset = await asyncio.to_thread(incoming.append, data, self._replicas.now_ms())

    def serve(self, body: bytes) -> bytes:
        """Returns batches for a peer that builds a replica; empty if they are not available
        here."""
        try:
            wanted = _decoder.decode(body)
        except msgspec.MsgspecError as error:
            raise ProtocolError(f"invalid request for a compacted part: {error}") from None
        replica = self._replicas.get(GroupId(wanted.group))
        if replica is None or wanted.end_offset > replica.entries.folded_offset:
            return b""
        replica.entries.note_copying(self._replicas.monotonic() + _COPIED_SECONDS)
        end_offset = Offset(wanted.end_offset)
        try:
            found = replica.entries.log.read(
                Offset(wanted.offset), _STEP_BYTES, limit_offset=end_offset
            )
        except KafkaError as error:
            logger.warning("group %d cannot be copied: %s", wanted.group, error)
            return b""
        return _NEXT.pack(found.next_offset) + bytes(found.records)
