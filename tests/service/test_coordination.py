"""Coordination sessions on a real broker's coordination service."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager

import pytest
from kazoo.client import KazooClient
from tests.waiting import until

from kafkaesque.service.coordination import CoordinationSession, CoordinationSessionError
from kafkaesque.testing.broker_process import BrokerProcess

pytestmark = pytest.mark.story

SECONDS = 60.0
SESSION_SECONDS = 5.0


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    settings = {"flush": "never", "coordination.listener": "127.0.0.1:0"}
    with BrokerProcess(tmp_path_factory.mktemp("broker"), settings) as broker:
        yield broker.facts["coordination"]


@asynccontextmanager
async def opened(
    hosts: str, on_change: Callable[[], None] | None = None
) -> AsyncIterator[CoordinationSession]:
    session = await CoordinationSession.open(
        hosts, session_seconds=SESSION_SECONDS, name="test", on_change=on_change
    )
    try:
        yield session
    finally:
        await session.close()


def expire(session: CoordinationSession, hosts: str) -> None:
    """Ends the session on the server: another connection resumes it and closes it."""
    other = KazooClient(hosts=hosts, client_id=session._client.client_id)
    other.start()
    other.stop()
    other.close()


def run(story: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(story(), SECONDS))


def test_an_expired_session_registers_its_nodes_again_but_not_what_it_acquired(hosts: str) -> None:
    async def story() -> None:
        changes: list[None] = []
        async with opened(hosts) as watcher, opened(hosts, lambda: changes.append(None)) as session:
            await session.register("/expired/members/a", b"1")
            await session.ensure_path("/expired/owners")
            assert await session.acquire("/expired/owners/0", "a")
            assert not session.is_lost
            changes.clear()
            await asyncio.to_thread(expire, session, hosts)
            await until(lambda: session.is_lost)

            async def is_registered() -> bool:
                return await watcher.children_data("/expired/members") == {"a": b"1"}

            await until(is_registered)
            assert await watcher.children("/expired/owners") == []
            assert changes
        assert session.is_lost

    run(story)


def test_registering_replaces_the_node_of_a_previous_process_and_closing_keeps_it(
    hosts: str,
) -> None:
    async def story() -> None:
        seen: list[list[str]] = []
        async with opened(hosts) as second:
            await second.ensure_path("/replaced")
            await second.watch_children("/replaced", seen.append)
            assert seen == [[]]
            async with opened(hosts) as first:
                await first.register("/replaced/a", b"first")
                await second.register("/replaced/a", b"second")
            assert await second.children_data("/replaced") == {"a": b"second"}
            await until(lambda: seen[-1] == ["a"])

    run(story)


def test_closing_deletes_the_nodes_and_wakes_a_session_that_found_them_taken(hosts: str) -> None:
    async def story() -> None:
        changed = asyncio.Event()
        async with opened(hosts, changed.set) as waiting:
            async with opened(hosts) as holder:
                await holder.ensure_path("/acquired")
                assert await holder.acquire("/acquired/0", "holder")
                assert await holder.acquire("/acquired/0", "holder")
                assert not await waiting.acquire("/acquired/0", "waiting")
                changed.clear()
            await changed.wait()
            assert await waiting.acquire("/acquired/0", "waiting")
            await waiting.release("/acquired/0")
            assert await waiting.children("/acquired") == []

    run(story)


def test_data_is_watched_on_the_event_loop_until_the_session_is_closed(hosts: str) -> None:
    async def story() -> None:
        seen: list[bytes] = []
        async with opened(hosts) as writer:
            async with opened(hosts) as reader:
                await writer.register("/watched", b"1")
                await reader.watch_data("/watched", seen.append)
                assert seen == [b"1"]
                await writer.register("/watched", b"2")
                await until(lambda: seen[-1] == b"2")
            await writer.register("/watched", b"3")
            assert seen[-1] == b"2"

    run(story)


def test_errors_of_kazoo_become_coordination_errors(
    hosts: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        async with opened(hosts) as session:
            with pytest.raises(CoordinationSessionError, match="NoNodeError"):
                await session.children("/missing")
            with pytest.raises(CoordinationSessionError, match="NoNodeError"):
                await session.release("/missing")
        monkeypatch.setattr("kafkaesque.service.coordination.CONNECT_SECONDS_MAX", 0.1)
        with pytest.raises(CoordinationSessionError, match=r"no ZooKeeper at 127\.0\.0\.1:1"):
            await CoordinationSession.open("127.0.0.1:1", session_seconds=5.0, name="test")

    run(story)
