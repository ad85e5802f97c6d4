"""Compiled and Python appends do the same to a partition, whatever is appended and refused."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
from tests.broker.partitions.rig import ME, START_MS, Rig, batch, open_rig

from kafkaesque.broker.partitions.partition import Partition
from kafkaesque.broker.partitions.rules.appended import Appended
from kafkaesque.broker.partitions.rules.producers import ProducerTable
from kafkaesque.broker.partitions.waiting import BytesAwaited
from kafkaesque.model.errors import InvariantBroken, KafkaError, StorageFailed
from kafkaesque.model.ids import Offset, ProducerEpoch, ProducerId, TimestampMs
from kafkaesque.model.settings import TopicConfig
from kafkaesque.records.codec import Record, encode_batch
from kafkaesque.records.native import pure

pytestmark = pytest.mark.skipif(
    pure(Partition.append) is Partition.append,
    reason="nothing is compiled: unset KAFKAESQUE_PURE, or apt install gcc python3-dev and make clean setup",
)
Append = Callable[..., Any]
SIDES: dict[str, Append] = {"compiled": Partition.append, "pure": pure(Partition.append)}


def story(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def run(**given: Any) -> None:
        asyncio.run(test(**given))

    return run


async def behind_all_scheduled() -> None:
    """When all has run that a replica has put into the loop."""
    loop = asyncio.get_running_loop()
    reached = loop.create_future()
    loop.call_soon(reached.set_result, None)
    await reached


class Beside:
    """Two partitions: one is appended to by the compiled method, the other by the Python one."""

    def __init__(self, rigs: dict[str, Rig]) -> None:
        self.rigs = rigs

    async def each(self, do: Callable[[Rig, Append], Any]) -> Any:
        """What both say to it, which is the same, and they are the same behind it."""
        outcomes = [await self._outcome(rig, SIDES[name], do) for name, rig in self.rigs.items()]
        assert outcomes[0] == outcomes[1]
        return outcomes[0][0]

    async def _outcome(self, rig: Rig, append: Append, do: Callable[[Rig, Append], Any]) -> Any:
        partition = rig.partition
        root = str(partition.log.directory.parent)
        try:
            told = do(rig, append)
            if isinstance(told, asyncio.Task):
                told = await told
        except (KafkaError, InvariantBroken) as error:
            told = type(error), str(error).replace(root, "")
        for _ in range(2):  # what a sync brings may ask for another
            await behind_all_scheduled()
            await rig.flusher.settled()
        offsets = (
            partition.log_start_offset,
            partition.log_end_offset,
            partition.high_watermark,
            partition.replica.last_index,
            partition.log.synced_offset,
        )
        producers = partition.producers.snapshot(), partition.producers.sent_away_s
        return told, type(told), offsets, producers, partition._unsynced_since_ms


@asynccontextmanager
async def beside(path: Path, config: TopicConfig, **options: Any) -> AsyncIterator[Beside]:
    files = []
    async with (
        open_rig(path / "compiled", config, **options) as compiled,
        open_rig(path / "pure", config, **options) as python,
    ):
        yield Beside({"compiled": compiled, "pure": python})
    for name in SIDES:
        logs = sorted((path / name / "log").glob("*.log"))
        files.append([(log.name, log.read_bytes()) for log in logs])
    assert files[0] == files[1]
    assert files[0]


def made(step: dict[str, Any]) -> memoryview:
    records = [
        Record(Offset(0), TimestampMs(START_MS + step["age_ms"]), b"k", b"v" * step["size_bytes"])
        for _ in range(step["count"])
    ]
    data = encode_batch(
        records,
        producer_id=ProducerId(step["producer"]),
        producer_epoch=ProducerEpoch(step["epoch"] if step["producer"] >= 0 else -1),
        base_sequence=step["sequence"] if step["producer"] >= 0 else -1,
    )
    if step["damage"] is not None:
        data[step["damage"] % len(data)] ^= 0x41
    return memoryview(data[: -step["short"]] if step["short"] else data)


def random_step(rng: random.Random) -> dict[str, Any] | str:
    if rng.random() < 0.15:
        return rng.choice(
            ["full disk", "closed", "watched", "later", "settings", "flushed", "told"]
        )
    return {
        "count": rng.randint(1, 4),
        "size_bytes": rng.choice([0, 20, 300, 3000]),
        "age_ms": rng.choice([0] * 12 + [-100_000, 100_000]),
        "producer": rng.choice([-1, -1, 5, 6]),
        "epoch": rng.choice([0] * 8 + [1]),
        "sequence": rng.randint(0, 8),
        "damage": rng.choice([None] * 14 + [rng.randint(0, 400)]),
        "short": rng.choice([0] * 20 + [1, 30]),
        "acks_all": rng.random() < 0.5,
    }


def other(rig: Rig, step: str, later: TopicConfig) -> None:
    partition = rig.partition
    if step == "full disk":
        rig.calls.room_bytes = 0 if rig.calls.room_bytes else float("inf")
    elif step == "closed":
        partition.closed = None if partition.closed else StorageFailed("closed for a while")
    elif step == "watched":
        if partition._watchers:
            partition._watchers.clear()
        else:
            partition.watch(BytesAwaited(10**6, asyncio.get_running_loop()))
    elif step == "later":
        rig.clock.advance(1000)
    elif step == "settings":
        partition.set_config(later)
    elif step == "flushed":
        partition._unsynced_since_ms = None
    else:
        partition.replica.status()  # tells Raft of all that was appended


def random_config(rng: random.Random) -> TopicConfig:
    return TopicConfig(
        max_message_bytes=rng.choice([1000, 100_000, 100_000]),
        segment_bytes=rng.choice([4000, 100_000]),
        message_timestamp_type=rng.choice(["CreateTime"] * 5 + ["LogAppendTime"]),
        message_timestamp_before_max_ms=rng.choice([2**63 - 1, 2**63 - 1, 50_000]),
        message_timestamp_after_max_ms=rng.choice([2**63 - 1, 3_600_000, 50_000]),
        min_insync_replicas=rng.choice([1] * 5 + [2]),
        flush_messages=rng.choice([2**63 - 1] * 5 + [3]),
        compression_type=rng.choice(["producer"] * 6 + ["gzip"]),
    )


@pytest.mark.parametrize("seed", range(40))
@story
async def test_any_appends_and_failures_leave_both_partitions_alike(
    tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    config, later = random_config(rng), random_config(rng)
    async with beside(tmp_path, config, flush_always=rng.random() < 0.1) as both:
        await both.each(lambda rig, append: append(rig.partition, batch(b"1"), all_replicas=False))
        for _ in range(60):
            step = random_step(rng)
            if isinstance(step, str):
                await both.each(lambda rig, _, step=step: other(rig, step, later))
            else:
                await both.each(lambda rig, append, step=step: append_step(rig, append, step))
        await both.each(lambda rig, _: setattr(rig.calls, "room_bytes", float("inf")))


def append_step(rig: Rig, append: Append, step: dict[str, Any]) -> Any:
    return append(rig.partition, made(step), all_replicas=step["acks_all"])


@story
async def test_ordinary_appends_need_no_python(tmp_path: Path) -> None:
    async with open_rig(tmp_path, flush_always=False) as rig:
        for _ in range(3):
            rig.partition.append(batch(b"1"), all_replicas=False)
        batches = [batch(b"2") for _ in range(20)]
        called: list[str] = []
        sys.setprofile(
            lambda frame, event, _: event == "call" and called.append(frame.f_code.co_qualname)
        )
        try:
            for one in batches:
                appended = rig.partition.append(one, all_replicas=True)
        finally:
            sys.setprofile(None)
        assert called.count("StepClock.wall_ms") == len(batches)
        python = {"Partition.append", "Partition._store", "Replica.append", "Rules.admit"}
        assert python.isdisjoint(called)
        assert appended == Appended(22, 23, -1, 0)
        assert type(appended) is Appended


@story
async def test_nothing_is_kept_of_what_was_appended(tmp_path: Path) -> None:
    async with open_rig(tmp_path, flush_always=False) as rig:
        partition = rig.partition

        def grow(count: int) -> list[int]:
            for number in range(count):
                data = bytearray(batch(b"1", producer=number % 3 - 1, sequence=number // 3))
                appended = partition.append(memoryview(data), all_replicas=False)
                assert sys.getrefcount(appended) == 2
                data.append(0)  # raises if somebody still looks at it
            replica = partition.replica
            held = [partition, replica, replica.entries, replica.standing, partition.log]
            return [sys.getrefcount(thing) for thing in (*held, partition._env, partition._rules)]

        first = grow(300)
        partition.producers = ProducerTable(Offset(0))
        before = sys.getallocatedblocks()
        assert grow(600) == first
        assert sys.getallocatedblocks() - before < 300


@story
async def test_what_the_log_raises_is_passed_on_and_nothing_is_noted(tmp_path: Path) -> None:
    class Crash(BaseException):
        pass

    async with open_rig(tmp_path, flush_always=False) as rig:
        partition = rig.partition
        for _ in range(3):
            partition.append(batch(b"1"), all_replicas=False)
        before = partition.log_end_offset, partition.high_watermark

        def crash(*_: object) -> int:
            raise Crash

        rig.calls.pwrite = crash  # type: ignore[method-assign]
        with pytest.raises(Crash):
            partition.append(batch(b"2"), all_replicas=False)
        assert (partition.log_end_offset, partition.high_watermark) == before
        del rig.calls.pwrite  # type: ignore[method-assign]
        assert partition.append(batch(b"2"), all_replicas=False) == Appended(3, 4, -1, 0)  # type: ignore[arg-type]


@story
async def test_alone_among_members_to_be_is_not_alone(tmp_path: Path) -> None:
    async with open_rig(tmp_path, flush_always=False, members=(ME,)) as rig:
        rig.partition.append(batch(b"1"), all_replicas=False)
        assert rig.partition.replica.leads_alone
        rig.partition.replica.tick()
        assert not rig.partition.replica.leads_alone
        rig.partition.append(batch(b"2"), all_replicas=False)
        assert rig.partition.high_watermark == 2


@pytest.mark.parametrize("count", [0, 2, 3])
@story
async def test_append_without_its_arguments_is_refused_as_in_python(
    tmp_path: Path, count: int
) -> None:
    async with open_rig(tmp_path, flush_always=False) as rig:
        with pytest.raises(TypeError):
            rig.partition.append(*[memoryview(b"")] * count)  # type: ignore[misc]
