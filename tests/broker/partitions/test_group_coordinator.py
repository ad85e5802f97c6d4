"""The driver of the group rules: commit before answer, order kept, reload after a failure."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from tests.broker.partitions.rig import ME, OTHER, PEER, Rig, acknowledge, open_rig

from kafkaesque.broker.groups.config import GroupConfig
from kafkaesque.broker.groups.registry import GroupRegistry
from kafkaesque.broker.groups.types import (
    CommitAnswer,
    CommitRequest,
    JoinAnswer,
    JoinRequest,
    OffsetToCommit,
    Protocol,
    TopicToCommit,
    TopicToFetch,
)
from kafkaesque.broker.partitions.coordinator_runtime import BATCH_BYTES_MAX, java_hash, parts_of
from kafkaesque.broker.partitions.group_coordinator import GroupShard
from kafkaesque.model.clock import Moment
from kafkaesque.model.errors import (
    CoordinatorLoading,
    CoordinatorNotAvailable,
    ErrorCode,
    NotCoordinator,
    StorageFailed,
)
from kafkaesque.model.ids import Offset, PartitionIndex
from kafkaesque.model.settings import TopicConfig
from kafkaesque.records.log_fields import LogRecord
from kafkaesque.service.process import new_event_loop

JOIN = JoinRequest(
    group_id="g",
    client_id="c",
    client_host="/h",
    session_timeout_ms=10_000,
    rebalance_timeout_ms=10_000,
    protocol_type="consumer",
    protocols=(Protocol("range", b""),),
    api_version=3,
)
COMPACTED = TopicConfig(cleanup_policy=("compact",))


SHUT = CoordinatorNotAvailable("shut")


def new_host(rig: Rig) -> GroupShard:
    loop = asyncio.get_running_loop()
    return GroupShard(rig.partition, new_registry, rig.clock, loop, rig.partition.leader_epoch)


def new_registry(delay_ms: int = 0) -> GroupRegistry:
    numbers = iter(range(1000))
    config = GroupConfig(initial_rebalance_delay_ms=delay_ms, session_timeout_ms_min=1)
    return GroupRegistry(config, lambda: str(next(numbers)))


def commit(offset: int) -> Callable[[GroupRegistry, int, Moment], Any]:
    request = CommitRequest(
        group_id="g",
        topics=(TopicToCommit("t", (OffsetToCommit(PartitionIndex(0), Offset(offset)),)),),
        api_version=8,
    )
    return lambda registry, token, now: registry.commit_offsets(request, token, now)


def committed(host: GroupShard) -> int:
    wanted = (TopicToFetch("t", (PartitionIndex(0),)),)
    return host.reading().fetch_offsets("g", wanted)[0].partitions[0].offset


def story(
    test: Callable[[Rig, GroupShard], Coroutine[Any, Any, None]],
) -> Callable[[Path], None]:
    def run(tmp_path: Path) -> None:
        async def play() -> None:
            async with open_rig(tmp_path, COMPACTED) as rig:
                host = new_host(rig)
                await test(rig, host)
                host.close(SHUT)

        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(play())

    run.__name__ = test.__name__
    return run


@story
async def test_offset_is_neither_answered_nor_visible_before_it_is_synced(
    rig: Rig, host: GroupShard
) -> None:
    rig.calls.gate.clear()
    asking = asyncio.create_task(host.ask(commit(7), CommitAnswer))
    await asyncio.to_thread(rig.calls.entered.wait, 30)
    assert not asking.done()
    assert committed(host) == -1
    rig.calls.gate.set()
    answer = await asking
    assert answer.topics[0].partitions[0].error is ErrorCode.NONE
    assert committed(host) == 7


@story
async def test_answers_come_in_the_order_of_the_decisions(rig: Rig, host: GroupShard) -> None:
    answered: list[int] = []

    async def ask(offset: int) -> None:
        await host.ask(commit(offset), CommitAnswer)
        answered.append(offset)

    await asyncio.gather(*(ask(number) for number in range(20)))
    assert answered == list(range(20))
    assert committed(host) == 19


@story
async def test_failed_disk_fails_the_request_and_the_shard_stops_serving(
    rig: Rig, host: GroupShard
) -> None:
    await host.ask(commit(1), CommitAnswer)
    rig.calls.broken = True
    with pytest.raises(NotCoordinator):
        await host.ask(commit(2), CommitAnswer)
    with pytest.raises(CoordinatorLoading):
        host.reading()


def test_clients_of_a_leader_that_hands_over_retry_here(tmp_path: Path) -> None:
    """On NOT_COORDINATOR librdkafka looks the coordinator up once, finds the same one and gives up."""

    async def story() -> None:
        async with open_rig(
            tmp_path, COMPACTED, members=(ME, PEER, OTHER), flush_always=False
        ) as rig:
            host = new_host(rig)
            rig.partition.replica.transfer_leadership(PEER)
            with pytest.raises(CoordinatorLoading):
                await host.ask(commit(1), CommitAnswer)
            host.close(SHUT)

    asyncio.run(story())


def test_reloaded_decision_is_not_visible_before_it_is_committed(tmp_path: Path) -> None:
    """A decision may still be lost with its leader: no client may act on it (found by simulation)."""

    async def story() -> None:
        async with open_rig(
            tmp_path, COMPACTED, members=(ME, PEER, OTHER), flush_always=False
        ) as rig:
            host = new_host(rig)
            asking = asyncio.create_task(host.ask(commit(7), CommitAnswer))
            await asyncio.sleep(0)  # one turn of the loop: it is appended, and no other node has it
            assert rig.partition.high_watermark < rig.partition.log_end_offset
            host._reload(StorageFailed("the disk is full"))
            with pytest.raises(CoordinatorLoading):
                await asking
            loading = host._loading
            assert loading is not None
            while not (loading.done() or rig.partition._commit_waiters.pending[1:]):
                await asyncio.sleep(0)  # a turn of the loop: a thread reads the log
            with pytest.raises(CoordinatorLoading):
                host.reading()
            acknowledge(rig.partition.replica, PEER)
            await loading
            assert committed(host) == 7
            host.close(SHUT)

    asyncio.run(story())


@story
async def test_request_while_a_deadline_is_due_is_served(rig: Rig, host: GroupShard) -> None:
    """uvloop's handle of a timer that is already due does not return its time."""
    await host.ask(lambda registry, token, now: registry.join(JOIN, token, now), JoinAnswer)
    rig.clock.advance(100_000)
    host._set_timer()
    host._set_timer()


@story
async def test_restart_loads_what_was_committed(rig: Rig, host: GroupShard) -> None:
    for number in range(100):
        await host.ask(commit(number), CommitAnswer)
    again = new_host(rig)
    with pytest.raises(CoordinatorLoading):
        again.reading()
    assert again._loading is not None
    await again._loading
    assert committed(again) == 99
    again.close(SHUT)


@story
async def test_cancelled_caller_leaves_nothing_waiting(rig: Rig, host: GroupShard) -> None:
    host.registry = new_registry(delay_ms=60_000)
    host.registry.loaded(Moment(rig.clock.monotonic(), rig.clock.wall_ms()))
    asking = asyncio.create_task(
        host.ask(lambda registry, token, now: registry.join(JOIN, token, now), JoinAnswer)
    )
    await asyncio.sleep(0)  # one turn of the loop: the join is decided, its answer waits
    assert host.registry.waiting_count() == 1
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    assert host.registry.waiting_count() == 0


def test_many_records_are_split_into_batches_that_fit() -> None:
    records = [LogRecord(b"k" * 100, b"v" * 10_000) for _ in range(200)]
    parts = list(parts_of(records))
    assert [record for part in parts for record in part] == records
    assert len(parts) > 1
    assert all(sum(len(k) + len(v or b"") for k, v in part) <= BATCH_BYTES_MAX for part in parts)


@pytest.mark.parametrize(
    ("text", "code"),
    [("", 0), ("a", 97), ("hello", 99162322), ("group", 98629247), ("polygenelubricants", 0)],
)
def test_group_is_hashed_as_java_does(text: str, code: int) -> None:
    """The last one is known for hashing to -2^31, which Kafka's Utils.abs takes as 0."""
    assert java_hash(text) == code
