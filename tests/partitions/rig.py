"""A partition on a real log in a temporary directory, with a clock that moves when told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from kafkaesque.model.ids import (
    LeaderEpoch,
    Offset,
    PartitionIndex,
    ProducerEpoch,
    ProducerId,
    TimestampMs,
    TopicId,
    TopicPartition,
)
from kafkaesque.model.settings import TopicConfig
from kafkaesque.partitions.flusher import Flusher
from kafkaesque.partitions.partition import (
    Environment,
    Partition,
    load_producers,
    log_config,
)
from kafkaesque.records.codec import Record, encode_batch
from kafkaesque.storage.log import Log
from kafkaesque.storage.open_files import OpenFiles, SystemCalls

START_MS = TimestampMs(1_700_000_000_000)
TOPIC_ID = TopicId(UUID(int=7))


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
    """Syncs wait until `gate` is set, or fail if `broken`."""

    def __init__(self) -> None:
        import threading

        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()
        """A sync has begun."""
        self.broken = False
        self.count = 0

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
) -> AsyncIterator[Rig]:
    loop = asyncio.get_running_loop()
    clock, calls, flusher = StepClock(), GatedCalls(), Flusher(loop)
    files = OpenFiles(16, calls)
    config = config or TopicConfig()
    log = Log.open(directory / "log", log_config(config), files, clean=clean)
    env = Environment(loop, clock, flusher, flush_always, "header")
    name = TopicPartition("t", PartitionIndex(0))
    producers = load_producers(log)
    partition = Partition(name, TOPIC_ID, log, producers, config, LeaderEpoch(3), env)
    try:
        yield Rig(partition, flusher, calls, clock)
    finally:
        calls.gate.set()
        await flusher.close()
        log.close(clean=not calls.broken)
        files.close()


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
