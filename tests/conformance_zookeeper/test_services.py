"""Gateways, chat and timers on a real ZooKeeper at `zookeeper.connect`: they behave as on our own server.

Needs Java. The log is in memory: only coordination is under test here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from tests import waiting
from tests.conformance_zookeeper.conftest import IS_OURS, own_node
from tests.conformance_zookeeper.opened import opened

from kafkaesque.client.gateway_liveness import GatewayLiveness
from kafkaesque.client.memory import MemoryLog
from kafkaesque.events import tasks as words
from kafkaesque.events.gateway import GATEWAYS_NODE
from kafkaesque.gateway.config import gateway_config
from kafkaesque.gateway.gateway import Gateway
from kafkaesque.model.ids import PartitionIndex
from kafkaesque.service.clock import SystemClock
from kafkaesque.tasks.config import tasks_config
from kafkaesque.tasks.timers.election import ROOT, Elected, share_of
from kafkaesque.tasks.timers.service import TimerService
from kafkaesque.testing.maven import JavaUnavailable
from kafkaesque.testing.zookeeper import ZooKeeper

pytestmark = pytest.mark.timeout(400)

WITHIN_S = 120.0


@pytest.fixture(scope="module")
def real_address(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a real ZooKeeper: the one under test, or one for this module."""
    if not IS_OURS:
        yield request.getfixturevalue("address")
        return
    server = ZooKeeper()
    try:
        server.start()
    except JavaUnavailable as error:
        pytest.skip(f"no Apache ZooKeeper to compare with: {error}")
    try:
        yield server.connect_string
    finally:
        server.stop()


@pytest.fixture
def connect(real_address: str) -> Iterator[str]:
    """A `zookeeper.connect` with a root of its own."""
    with own_node(real_address) as root:
        yield real_address + root


async def until(condition: Callable[[], bool]) -> None:
    """Runs `condition` in a thread: it calls a ZooKeeper, which blocks."""
    await waiting.until(lambda: asyncio.to_thread(condition), within_s=WITHIN_S)


@asynccontextmanager
async def serving(name: str, connect: str, directory: Path) -> AsyncIterator[Gateway]:
    config = gateway_config({"zookeeper.connect": connect})
    data = directory / name
    data.mkdir()
    gateway = Gateway(name, MemoryLog(), config, data, SystemClock(), cheap_passwords=True)
    await gateway.prepare()
    try:
        await gateway.listen("127.0.0.1", 0)
        yield gateway
    finally:
        await gateway.stop()


@asynccontextmanager
async def seen_by_chat(connect: str) -> AsyncIterator[GatewayLiveness]:
    chat = GatewayLiveness(connect, "chat")
    await chat.start()
    try:
        yield chat
    finally:
        await chat.stop()


def test_gateways_see_one_another_and_chat_sees_the_live_ones(connect: str, tmp_path: Path) -> None:
    def others(gateway: Gateway) -> tuple[str, ...]:
        return gateway.coordination.targets(PartitionIndex(0), without_self=True)

    async def story(watcher: KazooClient) -> None:
        async with seen_by_chat(connect) as chat, serving("gw-1", connect, tmp_path) as first:
            async with serving("gw-2", connect, tmp_path) as second:
                await until(lambda: chat.names == {"gw-1", "gw-2"})
                await until(lambda: others(first) == (second.address,))
                await until(lambda: others(second) == (first.address,))
                _, stat = await asyncio.to_thread(watcher.get, f"{GATEWAYS_NODE}/gw-2")
                assert stat.ephemeralOwner != 0
            await until(lambda: chat.names == {"gw-1"})
            await until(lambda: others(first) == ())
            assert chat.is_alive("gw-1")
            assert not chat.is_alive("gw-2")

    with opened(connect, WITHIN_S) as watcher:
        asyncio.run(asyncio.wait_for(story(watcher), 2 * WITHIN_S))


@asynccontextmanager
async def running(
    name: str, log: MemoryLog, connect: str, path: Path
) -> AsyncIterator[TimerService]:
    config = tasks_config({"timers.tick.ms": "20"})
    service = TimerService(log, Elected(connect, name), path / name, SystemClock(), config)
    run = asyncio.create_task(service.run())
    try:
        yield service
    finally:
        service.stop()
        await run


def test_timers_are_shared_by_election_and_taken_over(connect: str, tmp_path: Path) -> None:
    names = ("left", "right")
    everything = frozenset(range(words.TIMERS.partitions))
    shares = {name: share_of(name, names, len(everything)) for name in names}
    assert all(shares.values()), "names by which both have something to do"

    async def story(watcher: KazooClient) -> None:
        def owners() -> dict[int, str]:
            found = {number: watcher.get(f"{ROOT}/owners/{number}") for number in everything}
            assert all(stat.ephemeralOwner for _, stat in found.values())
            return {number: name.decode() for number, (name, _) in found.items()}

        log = MemoryLog()
        async with running("left", log, connect, tmp_path) as left:
            await until(lambda: left.owned == everything)
            async with running("right", log, connect, tmp_path) as right:
                await until(lambda: {"left": left.owned, "right": right.owned} == shares)
                expected = {number: name for name in names for number in shares[name]}
                assert await asyncio.to_thread(owners) == expected
            await until(lambda: left.owned == everything)
            assert await asyncio.to_thread(owners) == dict.fromkeys(everything, "left")

    with opened(connect, WITHIN_S) as watcher:
        asyncio.run(asyncio.wait_for(story(watcher), 3 * WITHIN_S))
