"""A partition on a real log in a temporary directory, with a clock that the test advances."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from math import inf
from pathlib import Path
from uuid import UUID

from tests.broker.replication.no_peers import Nowhere, no_prefix

from kafkaesque.broker.partitions.environment import Changes, Environment
from kafkaesque.broker.partitions.partition import Partition
from kafkaesque.broker.partitions.producer_state import load_producers
from kafkaesque.broker.partitions.rules.producers import ProducerTable
from kafkaesque.broker.raft.messages import AppendResponse, PreVoteResponse, VoteResponse
from kafkaesque.broker.raft.types import Role
from kafkaesque.broker.replication.flusher import Flusher
from kafkaesque.broker.replication.opening import open_replica
from kafkaesque.broker.replication.raft_journal import RaftJournal
from kafkaesque.broker.replication.replica import Replica
from kafkaesque.broker.replication.replica_set import RAFT_CONFIG, PeerOutbox, ReplicaSet
from kafkaesque.broker.storage.config import log_config
from kafkaesque.broker.storage.log import Log
from kafkaesque.broker.storage.open_files import OpenFiles, SystemCalls
from kafkaesque.model.ids import (
    FIRST_PARTITION_GROUP,
    MemberId,
    Offset,
    PartitionIndex,
    ProducerEpoch,
    ProducerId,
    TimestampMs,
    TopicId,
    TopicPartition,
)
from kafkaesque.model.settings import TopicConfig
from kafkaesque.records.codec import Record, encode_batch

START_MS = TimestampMs(1_700_000_000_000)
TOPIC_ID = TopicId(UUID(int=7))
GROUP = FIRST_PARTITION_GROUP
ME, PEER, OTHER = MemberId(1), MemberId(2), MemberId(3)


class StepClock:
    def __init__(self) -> None:
        self.now_ms = START_MS

    def wall_ms(self) -> TimestampMs:
        return self.now_ms

    def monotonic(self) -> float:
        return self.now_ms / 1000

    def advance(self, milliseconds: int) -> None:
        self.now_ms = TimestampMs(self.now_ms + milliseconds)


class GatedCalls(SystemCalls):
    """Syncs wait until `gate` is set, or fail if `broken`. A segment accepts writes of at most
    `room_bytes`."""

    def __init__(self) -> None:
        import threading

        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()
        """A sync has begun."""
        self.broken = False
        self.count = 0
        self.room_bytes = inf

    def pwrite(self, fd: int, data: bytes | bytearray | memoryview, position: int) -> int:
        if len(data) > self.room_bytes and os.readlink(f"/proc/self/fd/{fd}").endswith(".log"):
            raise OSError(28, "No space left on device")
        return super().pwrite(fd, data, position)

    def fdatasync(self, fd: int) -> None:
        self.entered.set()
        self.gate.wait(30)
        self.count += 1
        if self.broken:
            raise OSError(5, "Input/output error")
        super().fdatasync(fd)


@dataclass(slots=True)
class Rig:
    partition: Partition
    flusher: Flusher
    calls: GatedCalls
    clock: StepClock


@asynccontextmanager
async def open_rig(
    directory: Path,
    config: TopicConfig | None = None,
    *,
    flush_always: bool = True,
    clean: bool = True,
    members: tuple[MemberId, ...] = (ME,),
    outbox: PeerOutbox = Nowhere(),  # noqa: B008 - never changed here
) -> AsyncIterator[Rig]:
    loop = asyncio.get_running_loop()
    clock, calls, flusher = StepClock(), GatedCalls(), Flusher(loop)
    files = OpenFiles(16, calls)
    config = config or TopicConfig()
    (directory / "raft").mkdir(parents=True, exist_ok=True)
    journal = RaftJournal.open(directory / "raft", files)
    errors: list[BaseException] = []
    replicas = ReplicaSet(
        members[0], journal, flusher, outbox, no_prefix, clock, loop.call_soon, errors.append
    )
    env = Environment(loop, clock, replicas, Changes(), flush_always, "header")
    log = Log.open(directory / "log", log_config(config), files, clean=clean)
    name = TopicPartition("t", PartitionIndex(0))
    partition = Partition(
        name,
        TOPIC_ID,
        ProducerTable(Offset(0)),
        config,
        log.log_end_offset,
        env,
        lambda machine: open_replica(
            GROUP,
            log,
            members,
            replicas,
            machine,
            RAFT_CONFIG,
            flush_messages=env.flush_messages(config),
            is_clean=clean,
        ),
    )
    partition.producers = load_producers(partition.replica.entries)
    replicas.add(partition.replica)
    partition.replica.campaign()
    if members[1:]:
        await elect_with(partition.replica, members[1])
    while not partition.leads:
        await env.leadership_changes.take()
    calls.entered.clear()
    calls.count = 0
    try:
        yield Rig(partition, flusher, calls, clock)
    finally:
        calls.gate.set()
        await flusher.settled()
        replicas.remove(GROUP)
        await flusher.close()
        if not calls.broken:
            partition.replica.entries.close()
            journal.close(clean=True)
        log.close(clean=not calls.broken)
        files.close()
    assert not errors


async def elect_with(replica: Replica, voter: MemberId) -> None:
    """Play the part of a peer that grants every vote and holds every entry."""
    me = replica.raft.status().node_id

    async def becomes(role: Role) -> None:
        while replica.leadership.role is not role:
            await asyncio.sleep(0)  # a turn of the loop: the vote is being synced

    await becomes(Role.PRE_CANDIDATE)
    replica.step(PreVoteResponse(voter, me, replica.leadership.term, True))
    await becomes(Role.CANDIDATE)
    replica.step(VoteResponse(voter, me, replica.leadership.term, True))
    await becomes(Role.LEADER)
    acknowledge(replica, voter)


def acknowledge(replica: Replica, voter: MemberId) -> None:
    me = replica.raft.status().node_id
    replica.step(AppendResponse(voter, me, replica.leadership.term, replica.last_index))


def batch(
    *values: bytes, key: bytes | None = b"k", producer: int = -1, sequence: int = -1
) -> memoryview:
    records = [Record(Offset(0), START_MS, key, value) for value in values]
    return memoryview(
        encode_batch(
            records,
            producer_id=ProducerId(producer),
            producer_epoch=ProducerEpoch(0 if producer >= 0 else -1),
            base_sequence=sequence,
        )
    )
